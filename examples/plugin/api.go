package main

// request is what the frontend posts to a worker's /generate. Terms is what Laneway adds to a request path that was
// there before: about 100 opaque bytes.
type request struct {
	Prompt string `json:"prompt"`
	Terms  []byte `json:"terms"`
	// Open says that Terms are open ones (MintOpen): the worker claims the response instead of attaching to it.
	Open bool `json:"open,omitempty"`
}

// refusal is the body of a worker's answer that is not 202: nothing has been started, another worker may be tried.
type refusal struct {
	Error string `json:"error"`
}
