// Package tokentext makes and checks the text that the mock engine emits. Token i of a response is a function of the
// request id and i alone, so that whoever reads the response can verify every token without having been told anything
// else.
//
// A token is a space, symbols, and one end symbol from a set of its own: " k3xQ". So tokens delimit themselves,
// concatenated text can be verified wherever it was cut, and a verifier needs no token size. Everything is printable
// ASCII that JSON does not escape.
package tokentext

const (
	// MinSize and MaxSize bound the bytes of a token, the leading space included.
	MinSize = 4
	MaxSize = 4096

	inner = "abcdefghijklmnopqrstuvwxyz012345" // 5 bits each
	end   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ6789-_"

	gamma = 0x9e3779b97f4a7c15 // splitmix64's step
)

// Gen makes the tokens of one response. It is a small value: copy it freely, use it from any goroutine.
type Gen struct {
	h    uint64
	size int
}

// New returns the generator of the response to the request with this id. Its tokens have 4 to 8 bytes.
func New(id string) Gen {
	h := uint64(14695981039346656037)
	for i := 0; i < len(id); i++ {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return Gen{h: mix(h)}
}

// WithSize returns g with all tokens n bytes long; 0 means 4 to 8 bytes. n is brought into MinSize..MaxSize.
func (g Gen) WithSize(n int) Gen {
	if n != 0 {
		n = min(max(n, MinSize), MaxSize)
	}
	g.size = n
	return g
}

// Append appends token i (from 0) of the response to dst and returns it.
func (g Gen) Append(dst []byte, i int) []byte {
	r := mix(g.h + uint64(i)*gamma)
	n := g.size
	if n == 0 {
		n = MinSize + int(r>>61)*5/8
	}
	return appendToken(dst, r, n)
}

// Append appends token i (from 0) of the response to the request with this id. New(id).Append hashes the id only once.
func Append(dst []byte, id string, i int) []byte { return New(id).Append(dst, i) }

// appendToken writes the n bytes of the token whose random number is r. The end symbol depends on n, so a token that
// lost bytes in its middle does not pass for a shorter one.
func appendToken(dst []byte, r uint64, n int) []byte {
	dst = append(dst, ' ')
	bits, left := r, 11
	for k := n - 2; k > 0; k-- {
		if left == 0 {
			r = mix(r)
			bits, left = r, 11
		}
		dst = append(dst, inner[bits&31])
		bits >>= 5
		left--
	}
	return append(dst, end[mix(r+uint64(n))&31])
}

// mix is the output function of splitmix64.
func mix(z uint64) uint64 {
	z += gamma
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
