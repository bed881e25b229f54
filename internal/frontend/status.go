package frontend

import (
	"context"
	"errors"
	"net/http"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
)

// Values of the metrics' label error_type, which are also the error objects' codes.
const (
	labelInternal    = "internal"
	labelValidation  = "validation"
	labelNotFound    = "not_found"
	labelOverload    = "overload"
	labelUnavailable = "unavailable"
	labelTimeout     = "timeout"
	labelLost        = "lost"
	labelProtocol    = "protocol"
	labelCancelled   = "cancelled"
)

// statusGone is what metrics say of a request whose client has left. No client sees it.
const statusGone = 499

func (s *Server) unavailable(text string) (*openai.Error, string) {
	return &openai.Error{Status: http.StatusServiceUnavailable, Type: openai.TypeUnavailable, Code: labelUnavailable,
		Message: text}, labelUnavailable
}

func (s *Server) overloaded(text string) (*openai.Error, string) {
	return &openai.Error{Status: s.cfg.OverloadStatus, Type: openai.TypeOverloaded, Code: labelOverload, Message: text},
		labelOverload
}

// failure is what a client gets to see of a response's end, and the metrics' label (the table in the contracts).
func (s *Server) failure(err error) (*openai.Error, string) {
	var end *EndError
	if !errors.As(err, &end) {
		if errors.Is(err, context.DeadlineExceeded) {
			end = &EndError{End: EndDeadline}
		} else {
			end = &EndError{End: EndFailed, Code: CodeInternal, Text: "the frontend could not serve the request"}
		}
	}
	say := func(text string) string {
		if end.Text != "" {
			text += ": " + end.Text
		}
		return text
	}
	switch end.End {
	case EndFailed:
		switch end.Code {
		case CodeValidation:
			return &openai.Error{Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: labelValidation,
				Message: say("the worker did not accept the request")}, labelValidation
		case CodeNotFound:
			return &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: labelNotFound,
				Message: say("the worker did not find what was asked for")}, labelNotFound
		}
		return &openai.Error{Status: http.StatusInternalServerError, Type: openai.TypeServer, Code: labelInternal,
			Message: say("the response failed")}, labelInternal
	case EndRefused:
		switch end.Code {
		case CodeBusy:
			return s.overloaded(say("all workers are busy, try again later"))
		case CodeBadRequest:
			return &openai.Error{Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: labelValidation,
				Message: say("the worker could not read the request")}, labelValidation
		case CodeTooLarge:
			return &openai.Error{Status: http.StatusRequestEntityTooLarge, Type: openai.TypeInvalidRequest,
				Code:    labelValidation,
				Message: say("the request is too large for the way to the worker")}, labelValidation
		}
		return s.unavailable(say("no worker can take the request, try again later"))
	case EndDeadline:
		return &openai.Error{Status: http.StatusGatewayTimeout, Type: openai.TypeTimeout, Code: labelTimeout,
			Message: say("the worker took too long")}, labelTimeout
	case EndStopped, EndKilled: // the client is there, so it was this side that ended the response
		return s.unavailable(say("the response was cancelled"))
	case EndProtocol:
		return &openai.Error{Status: http.StatusBadGateway, Type: openai.TypeUpstream, Code: labelProtocol,
			Message: say("the worker's answer could not be read")}, labelProtocol
	}
	return &openai.Error{Status: http.StatusBadGateway, Type: openai.TypeUpstream, Code: labelLost,
		Message: say("the worker was lost")}, labelLost
}
