package tokentext

import "bytes"

// lookAround is how far from the expected index a token is looked for once it is wrong, to tell a missing token from a
// damaged one.
const lookAround = 64

// Verifier checks the text of one response piece by piece. It is not safe for concurrent use. The zero value is not
// useful: make it with NewVerifier.
type Verifier struct {
	g          Gen
	next       int // index that is expected now
	seen       int // tokens read, right or wrong
	wrong      int
	firstWrong int
	part       []byte // a token that was cut; its rest has not come yet
}

// NewVerifier returns a verifier for the response to the request with this id.
func NewVerifier(id string) Verifier { return Verifier{g: New(id), firstWrong: -1} }

// isEnd tells the end symbols; a table because it is looked up for every byte of every response.
var isEnd = func() (t [256]bool) {
	for i := 0; i < len(end); i++ {
		t[end[i]] = true
	}
	return t
}()

// Write checks the next bytes of the text. It keeps no reference to p. What it finds is in Wrong.
func (v *Verifier) Write(p []byte) {
	if len(v.part) > 0 && len(p) > 0 {
		// Finish the token that was cut.
		n := tokenLen(p, false)
		if n < 0 {
			v.keep(p)
			return
		}
		v.part = append(v.part, p[:n]...)
		v.token(v.part)
		v.part = v.part[:0]
		p = p[n:]
	}
	for len(p) > 0 {
		n := tokenLen(p, true)
		if n < 0 {
			v.keep(p)
			return
		}
		v.token(p[:n])
		p = p[n:]
	}
}

// keep stores a token's beginning; one that never ends is bounded and counted as a wrong token.
func (v *Verifier) keep(p []byte) {
	v.part = append(v.part, p...)
	if len(v.part) > MaxSize {
		v.token(v.part)
		v.part = v.part[:0]
	}
}

// tokenLen returns how many bytes of p belong to its first token, -1 when the token is not complete in p. A space in
// its middle ends it as well: what stands before is then a damaged token. fresh says that p begins a token, not the
// rest of one.
func tokenLen(p []byte, fresh bool) int {
	for i, c := range p {
		if isEnd[c] {
			return i + 1
		}
		if c == ' ' && (i > 0 || !fresh) {
			return i
		}
	}
	return -1
}

func (v *Verifier) token(t []byte) {
	v.seen++
	if v.is(t, v.next) {
		v.next++
		return
	}
	if v.firstWrong < 0 {
		v.firstWrong = v.next
	}
	for d := 1; d <= lookAround; d++ {
		if v.is(t, v.next+d) { // tokens are missing
			v.wrong += d
			v.next += d + 1
			return
		}
		if v.next-d >= 0 && v.is(t, v.next-d) { // repeated, or late
			v.wrong++
			return
		}
	}
	v.wrong++ // damaged, or another response's
	v.next++
}

func (v *Verifier) is(t []byte, i int) bool {
	if len(t) < MinSize || len(t) > MaxSize {
		return false
	}
	var room [64]byte
	return bytes.Equal(appendToken(room[:0], mix(v.g.h+uint64(i)*gamma), len(t)), t)
}

// Tokens returns how many tokens were read so far, right or wrong.
func (v *Verifier) Tokens() int { return v.seen }

// Right returns how many tokens were read so far, and whether all of them were right and none is cut: only then is
// the text known to be tokens.
func (v *Verifier) Right() (n int, ok bool) { return v.seen, v.wrong == 0 && len(v.part) == 0 }

// Wrong returns how many tokens were wrong so far: damaged or foreign, missing, repeated or out of order (a reordered
// pair counts as one missing and one late).
func (v *Verifier) Wrong() int { return v.wrong }

// FirstWrong returns the index at which the first wrong token was found, -1 when there is none.
func (v *Verifier) FirstWrong() int { return v.firstWrong }

// Finish ends the text. tokens is how many the server says it sent; those that are missing at the end, or are too many,
// are wrong. A negative number means that the server did not say. It returns Wrong.
func (v *Verifier) Finish(tokens int) int {
	if len(v.part) > 0 {
		v.token(v.part)
		v.part = v.part[:0]
	}
	if tokens >= 0 && v.next != tokens {
		if v.firstWrong < 0 {
			v.firstWrong = min(v.next, tokens)
		}
		v.wrong += max(v.next-tokens, tokens-v.next)
	}
	return v.wrong
}
