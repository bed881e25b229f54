package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden vectors instead of comparing with them")

// vectors are the golden records; docs/wire.md shows the same bytes.
func vectors() map[string][]byte {
	node := func(b byte) (id [16]byte) {
		for i := range id {
			id[i] = b + byte(i)
		}
		return id
	}
	slot := MakeSlot(7, 3)
	hello := &HelloBody{
		Lowest: 1, Highest: 1, Node: node(0x10), Link: 5, Lane: 2, Lanes: 4, MaxStreams: 65536, Serial: 9,
		Received: 4096,
		Log:      4 << 20, Resume: 10 * time.Second,
		Pings: Pings{Idle: 5 * time.Second, IdleSilence: 15 * time.Second, Active: time.Second,
			ActiveSilence: 3 * time.Second},
		OwnSecret: node(0x40), PeerSecret: node(0x80),
	}
	end := &EndBody{Number: 300, Type: EndFailed, Retryable: true, Code: 1, Records: 2, Bytes: 128, Text: "engine",
		Trailer: []byte{1, 2, 3}}
	terms := &Terms{Frontend: node(0x10), Worker: node(0x20), Link: 5, Slot: slot, Number: 300, Lane: 2, Window: 65536,
		TimeLeft: 1500 * time.Millisecond}
	key := NewKey(node(0x40), node(0x80))
	return map[string][]byte{
		"hello":     AppendHello(nil, hello),
		"ping":      AppendPing(nil, Ping, 0x0102030405060708, 4096),
		"pong":      AppendPing(nil, Pong, 0x0102030405060708, 4096),
		"ack":       AppendAck(nil, 4096),
		"goaway":    AppendGoAway(nil, AwayUnknownLink, "unknown link"),
		"open":      AppendOpen(nil, slot, 300, 0x0123456789abcdef),
		"data":      append(AppendHeader(nil, Data, 5, slot), "hello"...),
		"data_more": append(AppendHeader(nil, DataMore, 3, slot), "hel"...),
		"end":       AppendEnd(nil, slot, end),
		"consumed":  AppendConsumed(nil, slot, 300, 32768),
		"stop":      AppendStop(nil, slot, 300),
		"kill":      AppendKill(nil, slot, 300, EndDeadline),
		"claim":     AppendClaim(nil, node(0xa0)),
		"grant":     AppendGrant(nil, node(0xa0), Granted, AppendTerms(nil, terms, key)),
		"terms":     AppendTerms(nil, terms, key),
		"openterms": AppendOpenTerms(nil, &OpenTerms{Frontend: node(0x10), ID: node(0xa0),
			TimeLeft: 1500 * time.Millisecond}),
	}
}

func TestGoldenVectors(t *testing.T) {
	for name, got := range vectors() {
		file := filepath.Join("testdata", name+".hex")
		if *update {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(got)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s encodes as\n%x, the golden vector is\n%x", name, got, want)
		}
		switch name {
		case "terms":
			reencodeTerms(t, want)
			continue
		case "openterms":
			v, err := ParseOpenTerms(want)
			if err != nil || !IsOpenTerms(want) || !bytes.Equal(AppendOpenTerms(nil, &v), want) {
				t.Errorf("open terms: %+v, %v", v, err)
			}
			continue
		}
		if out, err := reencode(want); err != nil || !bytes.Equal(out, want) {
			t.Errorf("%s: decoded and encoded again is\n%x (%v), expected\n%x", name, out, err, want)
		}
	}
}

// reencode decodes one whole record and encodes what it said.
func reencode(b []byte) ([]byte, error) {
	h := ParseHeader(b)
	if err := h.Check(h.Kind.FromWorker()); err != nil {
		return nil, err
	}
	body := b[HeaderSize : HeaderSize+h.Length]
	switch h.Kind {
	case Hello:
		v, err := ParseHello(body)
		if err != nil {
			return nil, err
		}
		return AppendHello(nil, &v), nil
	case Ping, Pong:
		v, received, err := ParsePing(h.Kind, body)
		return AppendPing(nil, h.Kind, v, received), err
	case Ack:
		v, err := ParseAck(body)
		return AppendAck(nil, v), err
	case GoAway:
		code, text, err := ParseGoAway(body)
		return AppendGoAway(nil, code, text), err
	case Open:
		number, key, err := ParseOpen(h.Slot, body)
		return AppendOpen(nil, h.Slot, number, key), err
	case Data, DataMore:
		return append(AppendHeader(nil, h.Kind, len(body), h.Slot), body...), nil
	case End:
		v, err := ParseEnd(h.Slot, body)
		if err != nil {
			return nil, err
		}
		return AppendEnd(nil, h.Slot, &v), nil
	case Consumed:
		number, v, err := ParseConsumed(h.Slot, body)
		return AppendConsumed(nil, h.Slot, number, v), err
	case Kill:
		v, why, err := ParseKill(h.Slot, body)
		return AppendKill(nil, h.Slot, v, why), err
	case Stop:
		v, err := ParseStop(h.Slot, body)
		return AppendStop(nil, h.Slot, v), err
	case Claim:
		id, err := ParseClaim(body)
		return AppendClaim(nil, id), err
	case Grant:
		id, code, terms, err := ParseGrant(body)
		return AppendGrant(nil, id, code, terms), err
	}
	return nil, errors.New("skipped")
}

func reencodeTerms(t *testing.T, b []byte) {
	t.Helper()
	v, err := ParseTerms(b)
	if err != nil {
		t.Fatal(err)
	}
	node := func(b byte) (id [16]byte) {
		for i := range id {
			id[i] = b + byte(i)
		}
		return id
	}
	if !NewKey(node(0x40), node(0x80)).Holds(b) || NewKey(node(0x80), node(0x40)).Holds(b) {
		t.Error("the key of the golden terms does not hold, or another one does")
	}
	if out := AppendTerms(nil, &v, NewKey(node(0x40), node(0x80))); !bytes.Equal(out, b[:TermsSize]) {
		t.Errorf("terms: decoded and encoded again are\n%x, expected\n%x", out, b)
	}
}

func TestHeaderCheck(t *testing.T) {
	slot := MakeSlot(1, 0)
	for _, c := range []struct {
		name       string
		h          Header
		fromWorker bool
		ok         bool
	}{
		{"data from a worker", Header{Data, MaxData - HeaderSize, slot}, true, true},
		{"data from a frontend", Header{Data, 1, slot}, false, false},
		{"data too long", Header{Data, MaxData - HeaderSize + 1, slot}, true, false},
		{"kill from a frontend", Header{Kill, 9, slot}, false, true},
		{"kill from a worker", Header{Kill, 8, slot}, true, false},
		{"ping with a slot", Header{Ping, 8, slot}, true, false},
		{"data without a slot", Header{Data, 8, 0}, true, false},
		{"index 0 with a generation", Header{Data, 8, Slot(3)}, true, false},
		{"unknown kind", Header{Kind(0x7f), 0, slot}, true, false},
		{"a kind that is skipped", Header{Kind(0xc1), MaxLength, slot}, true, true},
		{"end of the longest body", Header{End, MaxEnd, slot}, true, true},
		{"control too long", Header{Consumed, MaxControl + 1, slot}, false, false},
	} {
		var bad *Error
		err := c.h.Check(c.fromWorker)
		if (err == nil) != c.ok || err != nil && !errors.As(err, &bad) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestVersionsThatMeet(t *testing.T) {
	if v, err := MeetVersion(1, 9); err != nil || v != MaxVersion {
		t.Errorf("1 to 9: %d, %v", v, err)
	}
	if _, err := MeetVersion(MaxVersion+1, MaxVersion+1); err == nil {
		t.Error("a peer that only speaks later versions was met")
	}
}

func TestNoAllocation(t *testing.T) {
	b := make([]byte, 0, 4096)
	slot := MakeSlot(1, 1)
	n := testing.AllocsPerRun(100, func() {
		b = AppendOpen(b[:0], slot, 1, 2)
		b = AppendConsumed(b, slot, 1, 3)
		b = AppendAck(b, 1)
		for rest := b; len(rest) > 0; {
			h := ParseHeader(rest)
			if h.Kind == Open {
				_, _, _ = ParseOpen(h.Slot, rest[HeaderSize:HeaderSize+h.Length])
			}
			rest = rest[HeaderSize+h.Length:]
		}
	})
	if n != 0 {
		t.Errorf("encoding and decoding allocates %.0f times", n)
	}
}

// FuzzRecord decodes anything: it must not panic, and whatever it accepts must encode to the same bytes.
func FuzzRecord(f *testing.F) {
	for _, v := range vectors() {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h := ParseHeader(b)
		if h.Kind.Skipped() || h.Check(h.Kind.FromWorker()) != nil || len(b) < HeaderSize+h.Length {
			return
		}
		b = b[:HeaderSize+h.Length]
		out, err := reencode(b)
		if err != nil {
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("an error that is not an *Error: %v", err)
			}
			return
		}
		switch h.Kind {
		case Hello: // reserved bytes and a longer tail are ignored
			b = b[:HeaderSize+HelloSize]
			clear(b[HeaderSize+120:])
			PutHeader(b, Hello, HelloSize, 0)
			clamp := func(at int, low, high uint32) {
				be.PutUint32(b[HeaderSize+at:], min(max(be.Uint32(b[HeaderSize+at:]), low), high))
			}
			clamp(64, MinLog, MaxLog)
			clamp(68, 0, uint32(MaxResume/time.Millisecond))
		case End:
			b[HeaderSize+9] &= 1 // unknown flags are ignored
		case Kill: // what is no end of this version is read as killed
			if t := EndType(b[len(b)-1]); t <= EndComplete || t >= endTypes {
				b[len(b)-1] = byte(EndKilled)
			}
		case GoAway:
			if h.Length > 2+MaxEndText {
				return // cut on sending, not on receipt
			}
		}
		if !bytes.Equal(out, b) {
			t.Fatalf("%s: %x encodes as %x", h.Kind, b, out)
		}
	})
}

// FuzzTerms does the same for terms.
func FuzzTerms(f *testing.F) {
	f.Add(vectors()["terms"])
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseTerms(b)
		if err != nil {
			return
		}
		key := NewKey([16]byte{1}, [16]byte{2})
		out := AppendTerms(nil, &v, key)
		again, err := ParseTerms(out)
		if err != nil || again != v || !key.Holds(out) {
			t.Fatalf("%+v became %+v (%v)", v, again, err)
		}
	})
}

// FuzzOpenTerms does the same for open terms.
func FuzzOpenTerms(f *testing.F) {
	f.Add(vectors()["openterms"])
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseOpenTerms(b)
		if err != nil {
			return
		}
		again, err := ParseOpenTerms(AppendOpenTerms(nil, &v))
		if err != nil || again != v {
			t.Fatalf("%+v became %+v (%v)", v, again, err)
		}
	})
}

// TestDocumentShowsTheVectors keeps docs/wire.md and the golden vectors in step.
func TestDocumentShowsTheVectors(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range vectors() {
		if !strings.Contains(string(doc), "| "+name+" | `"+hex.EncodeToString(b)+"` |") {
			t.Errorf("docs/wire.md does not show the vector of %s", name)
		}
	}
}
