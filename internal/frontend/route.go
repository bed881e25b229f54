package frontend

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
)

const modelsPath = "/v1/models"

// ServeHTTP is the router. Every answer, also to a wrong path, is JSON.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := newNames(r.Header)
	w.Header()["X-Request-Id"] = []string{id.shown()}
	now, rc := time.Now(), http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		// A connection's write deadline outlives the request that set it, so each request begins with its own. On
		// HTTP/2 it is the stream's, and would end one that waits for its first token.
		_ = rc.SetWriteDeadline(now.Add(s.cfg.WriteTimeout))
	}
	if r.ContentLength != 0 { // also for a body that is not read here: net/http reads on in it before it closes
		_ = rc.SetReadDeadline(now.Add(s.cfg.BodyTimeout))
	}
	path := r.URL.Path
	switch path { // what is refused there is counted
	case "/v1/chat/completions":
		s.post(w, r, id, openai.Chat)
		return
	case "/v1/completions":
		s.post(w, r, id, openai.Completion)
		return
	}
	if e, _ := s.refusal(w, r); e != nil {
		s.reply(w, e)
		return
	}
	switch {
	case path == modelsPath || strings.HasPrefix(path, modelsPath+"/"):
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.wrongMethod(w, r, "GET, HEAD")
			return
		}
		s.serveModels(w, strings.TrimPrefix(path[len(modelsPath):], "/"))
	default:
		s.reply(w, &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Code: "unknown_url",
			Message: fmt.Sprintf("no such path: %s (there are /v1/chat/completions, /v1/completions and /v1/models)",
				clip(path))})
	}
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, id names, k openai.Kind) {
	if r.Method != http.MethodPost {
		s.wrongMethod(w, r, "POST")
		return
	}
	s.generate(w, r, id, k)
}

func (s *Server) wrongMethod(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header()["Allow"] = []string{allow}
	s.reply(w, &openai.Error{Status: http.StatusMethodNotAllowed, Type: openai.TypeInvalidRequest,
		Code:    "method_not_allowed",
		Message: fmt.Sprintf("%s is not allowed on %s, expected %s", clip(r.Method), r.URL.Path, allow)})
}

func (s *Server) serveModels(w http.ResponseWriter, id string) {
	list := s.knownModels(missFresh)
	buf := getBuffer()
	defer putBuffer(buf)
	switch {
	case id == "":
		*buf = openai.AppendModelList(*buf, list, s.start.Unix())
	case slices.Contains(list, id):
		*buf = openai.AppendModel(*buf, id, s.start.Unix())
	default:
		s.reply(w, &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Param: "model",
			Code:    "model_not_found",
			Message: fmt.Sprintf("model %q is not served here: GET /v1/models lists those that are", clip(id))})
		return
	}
	_ = s.writeJSON(w, http.StatusOK, *buf) // the client may have left
}

// reply sends an error object. Statuses that are worth another try carry Retry-After.
func (s *Server) reply(w http.ResponseWriter, e *openai.Error) {
	if e.Type == openai.TypeOverloaded || e.Type == openai.TypeUnavailable {
		w.Header()["Retry-After"] = retryAfter
	}
	buf := getBuffer()
	*buf = e.AppendJSON(*buf)
	_ = s.writeJSON(w, e.Status, *buf) // the client may have left: what failed is what counts
	putBuffer(buf)
}

// writeJSON fails when the client does not take all of it.
func (s *Server) writeJSON(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	out := s.newOutput(w)
	return out.writeAll(body)
}

// Header values that never change; net/http does not write to them.
var (
	jsonType   = []string{"application/json"}
	sseType    = []string{"text/event-stream"}
	noCache    = []string{"no-cache"}
	no         = []string{"no"}
	retryAfter = []string{"1"} // seconds
)
