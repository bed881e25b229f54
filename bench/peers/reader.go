package peers

import (
	"context"
	"io"
)

// frameReader is a response at the frontend that is read from a stream of its own.
type frameReader struct {
	stream  io.ReadCloser
	in      unread
	batch   [][]byte
	trailer []byte
	ended   bool
}

func newFrameReader(stream io.ReadCloser) *frameReader {
	return &frameReader{stream: stream, in: unread{buf: make([]byte, 2<<10)}}
}

// NextBatch implements planebench.PeerResponse.
func (r *frameReader) NextBatch(context.Context) ([][]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	for {
		r.batch = r.batch[:0]
		for {
			body, rest, end, ok, err := nextFrame(r.in.bytes())
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			r.in.from = r.in.to - len(rest)
			if end {
				r.ended, r.trailer = true, append([]byte(nil), body...)
				break
			}
			r.batch = append(r.batch, body)
		}
		switch {
		case len(r.batch) > 0:
			return r.batch, nil
		case r.ended:
			return nil, io.EOF
		}
		if err := r.in.fill(r.stream); err != nil {
			return nil, err
		}
	}
}

// Trailer implements planebench.PeerResponse.
func (r *frameReader) Trailer() []byte { return r.trailer }

// Kill implements planebench.PeerResponse.
func (r *frameReader) Kill() { _ = r.stream.Close() }

// Close implements planebench.PeerResponse.
func (r *frameReader) Close() error { return r.stream.Close() }
