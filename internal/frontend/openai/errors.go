package openai

import "net/http"

// Values of the error object's "type".
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeServer         = "server_error"
	TypeOverloaded     = "overloaded_error"
	TypeUnavailable    = "service_unavailable"
	TypeTimeout        = "timeout"
	TypeUpstream       = "upstream_error"
)

// Error is the error object, and the status that it goes out with when the status line has not gone yet.
type Error struct {
	Status  int    // HTTP status
	Type    string // one of the Type constants
	Code    string // for programs; "" is written as null
	Param   string // the field of the request that is at fault; "" is written as null
	Message string // for people
}

func (e *Error) Error() string { return e.Message }

// Invalid is an error of the request: 400.
func Invalid(param, code, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Code: code, Param: param, Message: message}
}

// AppendJSON appends {"error":{...}} to dst and returns it.
func (e *Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":"`...)
	dst = AppendEscaped(dst, e.Message)
	dst = append(dst, `","type":"`...)
	dst = AppendEscaped(dst, e.Type)
	dst = append(dst, `","param":`...)
	dst = appendOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOrNull(dst, e.Code)
	return append(dst, "}}"...)
}

func appendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = AppendEscaped(dst, s)
	return append(dst, '"')
}
