package httpfront

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/laneway-ai/laneway/internal/openai"
)

// connsSpare is how many connections past MaxConnections are still answered: they are told why, and closed. What comes past
// those is closed at once, so that a flood holds a bounded number of descriptors.
const connsSpare = 256

// headerSlack is what net/http reads of a header past MaxHeaderBytes, so that the answer can be an error object.
const headerSlack = 256 << 10

// conns counts the connections to clients.
type conns struct {
	max  int // 0 = no bound
	open atomic.Int64
	over atomic.Uint64 // that came when there were too many
}

type overKey struct{}

// enter is part of http.Server.ConnContext, which is called once for each connection; state sees its end.
func (k *conns) enter(ctx context.Context, c net.Conn) context.Context {
	n := k.open.Add(1)
	if k.max == 0 || n <= int64(k.max) {
		return ctx
	}
	k.over.Add(1)
	if n > int64(k.max)+connsSpare {
		_ = c.Close()
	}
	return context.WithValue(ctx, overKey{}, k)
}

// state is http.Server.ConnState.
func (k *conns) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		k.open.Add(-1)
	}
}

// refusal is why a request must not be served, whatever it is; nil when it may. The connection does not outlive the answer.
func (s *Server) refusal(w http.ResponseWriter, r *http.Request) (e *openai.Error, label string) {
	if r.Context().Value(overKey{}) != nil {
		w.Header()["Connection"] = []string{"close"}
		return s.overloaded(fmt.Sprintf("the frontend has %d connections, as many as it may: try again later", s.cfg.MaxConnections))
	}
	if n := headerSize(r); n > s.cfg.MaxHeaderBytes {
		w.Header()["Connection"] = []string{"close"}
		return &openai.Error{Status: http.StatusRequestHeaderFieldsTooLarge, Type: openai.TypeInvalidRequest, Code: "header_too_large",
			Message: fmt.Sprintf("the request's header has %d bytes, at most %d are taken", n, s.cfg.MaxHeaderBytes)}, labelValidation
	}
	return nil, ""
}

// headerSize is the size of a request's header as HTTP/1 writes it, give or take the line breaks.
func headerSize(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}
