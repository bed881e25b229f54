package serving

import "slices"

// Dialect is how an API's stream of events ends, and how it says that it failed.
type Dialect uint8

// Dialects.
const (
	DialectChat      Dialect = iota // chat and completions: data: [DONE]
	DialectResponses                // response.completed and its kin
	DialectMessages                 // message_stop
	DialectOther                    // not known: a stream ends with the engine's body
)

// Path is an HTTP path that the frontend serves.
type Path struct {
	Path    string
	Dialect Dialect
	// Retry: after a worker has acknowledged the request, and before the head has come, it may be made again elsewhere.
	// Where it is false the engine may have acted (called a tool), and only --retry-accepted allows it.
	Retry bool
}

var paths = []Path{
	{"/v1/chat/completions", DialectChat, true},
	{"/v1/completions", DialectChat, true},
	{"/v1/responses", DialectResponses, false},
	{"/v1/messages", DialectMessages, false},
	{"/v1/embeddings", DialectOther, true},
	{"/v1/rerank", DialectOther, true},
	{"/tokenize", DialectOther, true},
}

// Paths returns the paths that every frontend serves.
func Paths() []Path { return slices.Clone(paths) }

// PathOf returns what is known of a path; of one that is not listed, that little is.
func PathOf(path string) Path {
	for _, p := range paths {
		if p.Path == path {
			return p
		}
	}
	return Path{Path: path, Dialect: DialectOther}
}
