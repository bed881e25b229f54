package tokentext

import (
	"bytes"
	"fmt"
	"testing"
)

func text(id string, size int, idx ...int) []byte {
	var b []byte
	g := New(id).WithSize(size)
	for _, i := range idx {
		b = g.Append(b, i)
	}
	return b
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// TestTokensAreFixed pins the text: a worker of one version and a load generator of another must agree.
func TestTokensAreFixed(t *testing.T) {
	if got, want := string(text("req-1", 0, 0, 1, 2, 255)), " co9 cr6 kjzI i0w8"; got != want {
		t.Errorf("tokens changed: %q, want %q", got, want)
	}
}

func TestTokenShape(t *testing.T) {
	lens := map[int]int{}
	for i := range 5000 {
		tok := Append(nil, "some id", i)
		lens[len(tok)]++
		if tok[0] != ' ' || !isEnd[tok[len(tok)-1]] {
			t.Fatalf("token %d: %q", i, tok)
		}
		for _, c := range tok[1 : len(tok)-1] {
			if isEnd[c] || c == ' ' || c == '"' || c == '\\' || c < 0x20 || c > 0x7e {
				t.Fatalf("token %d: %q has %q inside", i, tok, c)
			}
		}
	}
	for n := 4; n <= 8; n++ {
		if lens[n] < 500 {
			t.Errorf("only %d of 5000 tokens have %d bytes: %v", lens[n], n, lens)
		}
	}
	if len(lens) != 5 {
		t.Errorf("lengths %v, want 4 to 8", lens)
	}
	for _, size := range []int{4, 5, 13, 64, 300} {
		if got := len(text("x", size, 7)); got != size {
			t.Errorf("size %d gave %d bytes", size, got)
		}
	}
}

func TestVerifierAcceptsRightTextHoweverItIsCut(t *testing.T) {
	for _, size := range []int{0, 4, 5, 40} {
		b := text("r", size, seq(40)...)
		for step := 1; step < 30; step++ {
			v := NewVerifier("r")
			for p := b; len(p) > 0; {
				n := min(step, len(p))
				v.Write(p[:n])
				p = p[n:]
			}
			if w := v.Finish(40); w != 0 || v.Tokens() != 40 || v.FirstWrong() != -1 {
				t.Fatalf("size %d step %d: wrong %d, tokens %d, first %d", size, step, w, v.Tokens(), v.FirstWrong())
			}
		}
	}
}

func TestVerifierFindsFaults(t *testing.T) {
	join := func(a, b []int) []int { return append(append([]int(nil), a...), b...) }
	damaged := bytes.Clone(text("r", 6, seq(20)...))
	damaged[6*9+2] ^= 1
	shorter := text("r", 6, seq(20)...)
	shorter = append(shorter[:6*9+2:6*9+2], shorter[6*9+3:]...)
	foreign := append(text("r", 0, seq(5)...), text("q", 0, 5)...)
	foreign = append(foreign, text("r", 0, seq(20)[6:]...)...)
	cases := []struct {
		name         string
		text         []byte
		wrong, first int
	}{
		{"missing", text("r", 0, join(seq(7), seq(20)[8:])...), 1, 7},
		{"three missing", text("r", 0, join(seq(7), seq(20)[10:])...), 3, 7},
		{"repeated", text("r", 0, join(seq(8), seq(20)[7:])...), 1, 8},
		{"swapped", text("r", 0, join([]int{0, 1, 3, 2}, seq(20)[4:])...), 2, 2},
		{"short", text("r", 0, seq(18)...), 2, 18},
		{"too long", text("r", 0, seq(21)...), 1, 20},
		{"empty", nil, 20, 0},
		{"cut in the last token", text("r", 8, seq(20)...)[:8*20-3], 1, 19},
		{"damaged", damaged, 1, 9},
		{"without its end", append(text("r", 6, seq(10)...)[:59:59], text("r", 6, seq(20)[10:]...)...), 1, 9},
		{"a byte lost", shorter, 1, 9},
		{"of another response", foreign, 1, 5},
		{"all of another response", text("q", 0, seq(20)...), 20, 0},
	}
	for _, c := range cases {
		for _, step := range []int{1, 3, 7, 1000} {
			t.Run(fmt.Sprintf("%s/step=%d", c.name, step), func(t *testing.T) {
				v := NewVerifier("r")
				for p := c.text; len(p) > 0; {
					n := min(step, len(p))
					v.Write(p[:n])
					p = p[n:]
				}
				if w := v.Finish(20); w != c.wrong || v.FirstWrong() != c.first {
					t.Errorf("wrong %d (first at %d), want %d (first at %d)", w, v.FirstWrong(), c.wrong, c.first)
				}
			})
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	buf := make([]byte, 0, 4096)
	g := New("an id")
	if n := testing.AllocsPerRun(100, func() { buf = g.Append(buf[:0], 3) }); n != 0 {
		t.Errorf("Append allocates %v times", n)
	}
	b := text("an id", 0, seq(100)...)
	if n := testing.AllocsPerRun(100, func() { v := NewVerifier("an id"); v.Write(b) }); n != 0 {
		t.Errorf("Write allocates %v times", n)
	}
}

// FuzzVerifier holds that no text makes the verifier panic or keep more than a token, and that a right text passes at
// any cut.
func FuzzVerifier(f *testing.F) {
	f.Add([]byte(" abC"), uint8(3))
	f.Add(text("r", 0, seq(9)...), uint8(5))
	f.Fuzz(func(t *testing.T, p []byte, cut uint8) {
		v := NewVerifier("r")
		k := min(int(cut), len(p))
		v.Write(p[:k])
		v.Write(p[k:])
		if len(v.part) > MaxSize {
			t.Fatalf("keeps %d bytes", len(v.part))
		}
		whole := NewVerifier("r")
		whole.Write(p)
		if a, b := v.Finish(-1), whole.Finish(-1); a != b && len(p) <= MaxSize {
			t.Fatalf("cut at %d: %d wrong, in one piece %d", k, a, b)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	g := New("an id")
	var buf [64]byte
	for i := 0; b.Loop(); i++ {
		g.Append(buf[:0], i)
	}
}

func BenchmarkVerify(b *testing.B) {
	t := text("an id", 0, seq(256)...)
	for b.Loop() {
		v := NewVerifier("an id")
		v.Write(t)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/token")
}
