package serving

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Version of the protocol that this code speaks. A worker refuses others by name.
const Version = 1

// Request is what a worker is asked: the payload of a delivery.
type Request struct {
	ID     string // the request id
	Method string
	Path   string // as the client wrote it, without a query
	Model  string // as the client named it
	Stream bool   // the client asked for a stream of events
	// ModelAt and ModelLen are the place of model's value in Body, quotes included; 0 and 0 where it has none.
	ModelAt, ModelLen int
	Headers           []Header
	Body              []byte // the client's, byte for byte
}

// VersionError says that a request is of another version.
type VersionError struct{ Got int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("serving: the request is version %d, this worker reads %d "+
		"(run frontend and workers of one release)",
		e.Got, Version)
}

const flagStream = 1

// Validate returns everything that does not hold.
func (r *Request) Validate() error {
	var errs []error
	field := func(name, v string, max int) {
		if v == "" || len(v) > max {
			errs = append(errs, fmt.Errorf("serving: %s has %d bytes, expected 1 to %d", name, len(v), max))
		}
	}
	field("id", r.ID, maxValue)
	field("method", r.Method, maxName)
	field("path", r.Path, maxValue)
	if len(r.Model) > maxValue {
		errs = append(errs, fmt.Errorf("serving: model has %d bytes, expected at most %d", len(r.Model), maxValue))
	}
	if !r.placed() {
		errs = append(errs, fmt.Errorf("serving: model at %d, %d bytes, of a body of %d", r.ModelAt, r.ModelLen,
			len(r.Body)))
	}
	return errors.Join(append(errs, checkHeaders(r.Headers))...)
}

func (r *Request) placed() bool {
	return r.ModelAt >= 0 && r.ModelLen >= 0 && r.ModelAt <= len(r.Body) && r.ModelLen <= len(r.Body)-r.ModelAt &&
		uint64(len(r.Body)) <= 1<<32-1
}

// Encode returns the payload.
func (r *Request) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	size := 16 + len(r.ID) + len(r.Method) + len(r.Path) + len(r.Model) + len(r.Body)
	for _, f := range r.Headers {
		size += 3 + len(f.Name) + len(f.Value)
	}
	b := append(make([]byte, 0, size), Version, 0)
	if r.Stream {
		b[1] |= flagStream
	}
	b = appendLong(b, r.ID)
	b = appendShort(b, r.Method)
	b = appendLong(appendLong(b, r.Path), r.Model)
	b = binary.BigEndian.AppendUint32(b, uint32(r.ModelAt))
	b = binary.BigEndian.AppendUint32(b, uint32(r.ModelLen))
	return append(appendHeaders(b, r.Headers), r.Body...), nil
}

// DecodeRequest reads and checks a payload; Body stays part of it. Another version gives a *VersionError.
func DecodeRequest(p []byte) (*Request, error) {
	in := reader{b: p}
	if v := in.u8(); !in.bad && v != Version {
		return nil, &VersionError{Got: v}
	}
	flags := in.u8()
	r := &Request{Stream: flags&flagStream != 0}
	r.ID, r.Method, r.Path, r.Model = in.long(), in.short(), in.long(), in.long()
	r.ModelAt, r.ModelLen = in.u32(), in.u32()
	r.Headers = in.headers()
	r.Body = in.b
	if in.bad || flags&^flagStream != 0 {
		return nil, fmt.Errorf("%w request", ErrMalformed)
	}
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("%w request: %w", ErrMalformed, err)
	}
	return r, nil
}

// BodyFor returns the body with another name in the place of the model's. The same name, or a body that names none,
// gives the body itself.
func (r *Request) BodyFor(model string) []byte {
	if model == r.Model || r.ModelLen == 0 {
		return r.Body
	}
	name, err := json.Marshal(model)
	if err != nil {
		return r.Body // not reached: every string can be written
	}
	out := make([]byte, 0, len(r.Body)-r.ModelLen+len(name))
	out = append(append(out, r.Body[:r.ModelAt]...), name...)
	return append(out, r.Body[r.ModelAt+r.ModelLen:]...)
}
