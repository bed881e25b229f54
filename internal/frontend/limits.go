package frontend

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
	"github.com/laneway-ai/laneway/internal/frontend/outpath"
)

// connsSpare is how many connections past MaxConnections are still answered: they are told why, and closed. What comes
// past those is closed at once, so that a flood holds a bounded number of descriptors.
const connsSpare = 256

// headerSlack is what net/http reads of a header past MaxHeaderBytes, so that the answer can be an error object.
const headerSlack = 256 << 10

// filesSpare is how many of the files that the process may open are not for clients, but a quarter of them at most:
// lanes, etcd, NATS, the admin port and the watch of the process need some when clients have taken all others. A client
// that gets one of the upper half is told so.
const filesSpare = 256

// conns counts the connections to clients.
type conns struct {
	max   int                   // 0 = no bound
	files func() (uint64, bool) // Config.Files
	open  atomic.Int64
	over  atomic.Uint64 // that came when there were too many
}

type overKey struct{}

// enter is part of http.Server.ConnContext, which is called once for each connection; state sees its end. The context
// of a connection that is one too many says why.
func (k *conns) enter(ctx context.Context, c net.Conn) context.Context {
	why, far := "", false
	if n := k.open.Add(1); k.max > 0 && n > int64(k.max) {
		why, far = fmt.Sprintf("has %d connections, as many as it may", k.max), n > int64(k.max)+connsSpare
	} else if left, spare, ok := k.filesLeft(ctx); ok && left < spare {
		why, far = "is near its limit of open files", left < spare/2
	}
	if why == "" {
		return ctx
	}
	k.over.Add(1)
	if far {
		_ = c.Close()
	}
	return context.WithValue(ctx, overKey{}, why)
}

// filesLeft is how many files the process may still open, and how many of them are not for clients. A descriptor is the
// lowest number that is free, so those below the connection's are taken.
func (k *conns) filesLeft(ctx context.Context) (left, spare int64, ok bool) {
	c := outpath.From(ctx)
	if c == nil || k.files == nil {
		return 0, 0, false
	}
	limit, ok := k.files()
	if !ok || limit > 1<<31 {
		return 0, 0, false
	}
	return int64(limit) - int64(c.FD()) - 1, min(filesSpare, int64(limit)/4), true
}

// state is http.Server.ConnState.
func (k *conns) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		k.open.Add(-1)
	}
}

// refusal is why a request must not be served, whatever it is; nil when it may. The connection does not outlive the
// answer.
func (s *Server) refusal(w http.ResponseWriter, r *http.Request) (e *openai.Error, label string) {
	if why, over := r.Context().Value(overKey{}).(string); over {
		w.Header()["Connection"] = []string{"close"}
		return s.overloaded("the frontend " + why + ": try again later")
	}
	if n := headerSize(r); n > s.cfg.MaxHeaderBytes {
		w.Header()["Connection"] = []string{"close"}
		return &openai.Error{Status: http.StatusRequestHeaderFieldsTooLarge, Type: openai.TypeInvalidRequest,
				Code: "header_too_large",
				Message: fmt.Sprintf("the request's header has %d bytes, at most %d are taken", n,
					s.cfg.MaxHeaderBytes)},
			labelValidation
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
