package peers

import (
	"context"
	"io"
)

// frameReader is a response at the frontend that is read from a stream of its own.
type frameReader struct {
	stream io.ReadCloser

	buf     []byte
	from    int // what is not taken yet is buf[from:to]
	to      int
	batch   [][]byte
	trailer []byte
	ended   bool
}

func newFrameReader(stream io.ReadCloser) *frameReader {
	return &frameReader{stream: stream, buf: make([]byte, 2<<10)}
}

// NextBatch implements planebench.PeerResponse.
func (r *frameReader) NextBatch(context.Context) ([][]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	for {
		r.batch = r.batch[:0]
		for {
			body, rest, end, ok, err := nextFrame(r.buf[r.from:r.to])
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			r.from = r.to - len(rest)
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
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads what is there, at least one byte.
func (r *frameReader) fill() error {
	copy(r.buf, r.buf[r.from:r.to])
	r.from, r.to = 0, r.to-r.from
	if r.to == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.stream.Read(r.buf[r.to:])
	r.to += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Trailer implements planebench.PeerResponse.
func (r *frameReader) Trailer() []byte { return r.trailer }

// Kill implements planebench.PeerResponse.
func (r *frameReader) Kill() { _ = r.stream.Close() }

// Close implements planebench.PeerResponse.
func (r *frameReader) Close() error { return r.stream.Close() }
