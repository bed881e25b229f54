package childproc

import (
	"encoding/json"
	"io"
	"sync"
)

// Writer sends messages; it may be used concurrently.
type Writer[M Message] struct {
	mu  sync.Mutex
	enc *json.Encoder
	err error
}

// NewWriter sends to w.
func NewWriter[M Message](w io.Writer) *Writer[M] { return &Writer[M]{enc: json.NewEncoder(w)} }

// Send writes one line. After a failure all further ones fail the same way.
func (w *Writer[M]) Send(m M) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.enc.Encode(m)
	}
	return w.err
}
