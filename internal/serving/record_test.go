package serving

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// begin gives the decoder a head with nothing behind it.
func begin(t testing.TB, d *Decoder) {
	t.Helper()
	if _, p, err := d.Append(nil, appendHead([]byte{byte(KindHead)}, &Head{Status: 200})); err != nil ||
		p.Kind != KindHead || p.Head == nil || p.Head.Status != 200 {
		t.Fatalf("head: %+v, %v", p, err)
	}
}

func TestDeltaIsSmallAndLossless(t *testing.T) {
	var e Encoder
	var d Decoder
	begin(t, &d)
	for i, word := range []string{"one", "two", "two", "", "twenty", "ten ten ten"} {
		event := []byte(strings.Replace(chunk, "one", word, 1))
		rec := e.Append(nil, event)
		e.Sent(event)
		if i > 0 && (Kind(rec[0]) != KindDelta || len(rec) > 16) {
			t.Errorf("event %d travels as %d bytes of kind %d", i, len(rec), rec[0])
		}
		got, p, err := d.Append([]byte("before"), rec)
		if err != nil || p.Kind != KindEvent || string(got) != "before"+string(event) {
			t.Errorf("event %d: got %q, %+v, %v", i, got, p, err)
		}
	}
}

func TestDeltaOfARecordThatWasNotSent(t *testing.T) {
	var e Encoder
	var d Decoder
	begin(t, &d)
	put := func(event string, sent bool) {
		rec := e.Append(nil, []byte(event))
		if !sent {
			return
		}
		e.Sent([]byte(event))
		if got, _, err := d.Append(nil, rec); err != nil || string(got) != event {
			t.Errorf("got %q, %v, want %q", got, err, event)
		}
	}
	put(chunk, true)
	put("something else", false) // the window was full
	put(strings.Replace(chunk, "one", "two", 1), true)
}

// TestReferenceIsBounded: a longer event goes whole, leaves no reference, and the one behind it is whole again.
func TestReferenceIsBounded(t *testing.T) {
	var e Encoder
	var d Decoder
	begin(t, &d)
	for i, c := range []struct {
		size int
		kind Kind
	}{{MaxReference, KindEvent}, {MaxReference, KindDelta}, {MaxReference + 1, KindDelta}, {10, KindEvent},
		{MaxReference + 1, KindEvent}, {MaxReference, KindEvent}} {
		event := bytes.Repeat([]byte{'x'}, c.size)
		if i == 3 {
			event = []byte("0123456789")
		}
		if i == 4 {
			event = bytes.Repeat([]byte{'y'}, c.size)
		}
		rec := e.Append(nil, event)
		e.Sent(event)
		if Kind(rec[0]) != c.kind {
			t.Errorf("event %d is of kind %d, want %d", i, rec[0], c.kind)
		}
		if got, _, err := d.Append(nil, rec); err != nil || !bytes.Equal(got, event) {
			t.Errorf("event %d: %v", i, err)
		}
		if cap(d.ref) > 2*MaxReference {
			t.Errorf("the decoder keeps %d bytes", cap(d.ref))
		}
	}
}

func TestOffSendsWhole(t *testing.T) {
	e := Encoder{Off: true}
	for range 3 {
		if rec := e.Append(nil, []byte(chunk)); Kind(rec[0]) != KindEvent {
			t.Errorf("kind %d", rec[0])
		}
		e.Sent([]byte(chunk))
	}
}

func TestBadRecords(t *testing.T) {
	delta := func(p, s uint64) []byte {
		return binary.AppendUvarint(binary.AppendUvarint([]byte{byte(KindDelta)}, p), s)
	}
	event, last, body := append([]byte{byte(KindEvent)}, "0123456789"...), []byte{byte(KindLast), 'x'},
		[]byte{byte(KindBody), 'x'}
	for name, c := range map[string]struct {
		before [][]byte
		rec    []byte
	}{
		"empty":            {nil, []byte{}},
		"unknown kind":     {nil, []byte{9}},
		"second head":      {nil, appendHead([]byte{byte(KindHead)}, &Head{Status: 200})},
		"delta of nothing": {nil, delta(1, 0)},
		"delta cut":        {[][]byte{event}, []byte{byte(KindDelta), 1}},
		"delta overflows": {[][]byte{event}, append([]byte{byte(KindDelta)},
			bytes.Repeat([]byte{0xff}, 12)...)},
		"prefix too long":          {[][]byte{event}, delta(11, 0)},
		"prefix and suffix":        {[][]byte{event}, delta(6, 5)},
		"suffix wraps":             {[][]byte{event}, delta(1, 1<<64-1)},
		"event behind the last":    {[][]byte{last}, event},
		"piece behind an event":    {[][]byte{event}, body},
		"event behind a piece":     {[][]byte{body}, event},
		"delta behind a long body": {[][]byte{body}, delta(0, 0)},
	} {
		var d Decoder
		begin(t, &d)
		for _, rec := range c.before {
			if _, _, err := d.Append(nil, rec); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got, _, err := d.Append([]byte("kept"), c.rec); !errors.Is(err, ErrMalformed) || string(got) != "kept" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, rec := range map[string][]byte{"event first": event, "no status": {1, 0}, "status 99": {1, 0, 99, 0},
		"header cut": {1, 0, 200, 1, 3, 'a'}, "many headers of nothing": {1, 0, 200, 255}} {
		if _, _, err := new(Decoder).Append(nil, rec); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingIsAllocatedPerEvent(t *testing.T) {
	var e Encoder
	var d Decoder
	begin(t, &d)
	events := [][]byte{[]byte(chunk), []byte(strings.Replace(chunk, "one", "twenty", 1))}
	rec, out := make([]byte, 0, 512), make([]byte, 0, 512)
	for _, ev := range events {
		rec = e.Append(rec[:0], ev)
		e.Sent(ev)
		out, _, _ = d.Append(out[:0], rec)
	}
	i := 0
	n := testing.AllocsPerRun(200, func() {
		ev := events[i%2]
		i++
		rec = e.Append(rec[:0], ev)
		e.Sent(ev)
		var err error
		if out, _, err = d.Append(out[:0], rec); err != nil || !bytes.Equal(out, ev) {
			t.Fatalf("got %q, %v", out, err)
		}
		if DialectChat.Classify(ev) != ClassEvent {
			t.Fatal("not an event")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}

// FuzzDelta: whatever the events are, what the frontend reads is what the engine wrote, with delta on and off.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("a"), []byte("b"), []byte("c"), false)
	f.Add([]byte("aaaa"), []byte("aa"), []byte("aaaaaa"), false)
	f.Add(bytes.Repeat([]byte("x"), MaxReference+1), []byte("x"), []byte(""), true)
	f.Fuzz(func(t *testing.T, a, b, c []byte, off bool) {
		e := Encoder{Off: off}
		var d Decoder
		begin(t, &d)
		for _, ev := range [][]byte{a, b, c, b, a} {
			rec := e.Append(nil, ev)
			e.Sent(ev)
			if len(rec) > len(ev)+1 {
				t.Fatalf("%d bytes travel as %d", len(ev), len(rec))
			}
			if got, _, err := d.Append(nil, rec); err != nil || !bytes.Equal(got, ev) {
				t.Fatalf("got %q, %v, want %q", got, err, ev)
			}
		}
	})
}

// FuzzDecoder: records of a hostile worker cost at most what they and the reference hold. The oracle applies the
// specification to the whole event before, in the plainest way.
func FuzzDecoder(f *testing.F) {
	names, recs, _ := goldenRecords()
	for _, n := range names {
		f.Add(recs["head"], recs[n], recs["last"])
	}
	f.Add(recs["head"], []byte{3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0}, recs["delta"])
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var d Decoder
		var before []byte
		for i, rec := range [][]byte{a, b, c} {
			got, p, err := d.Append(nil, rec)
			if err != nil {
				if !errors.Is(err, ErrMalformed) || len(got) > 0 {
					t.Fatalf("%q, %v", got, err)
				}
				return
			}
			if len(got) > len(rec)+len(before) || (i == 0) != (p.Head != nil) || len(d.ref) > MaxReference {
				t.Fatalf("%d bytes of a record of %d", len(got), len(rec))
			}
			if i > 0 && rec[0] == byte(KindDelta) {
				pre, n := binary.Uvarint(rec[1:])
				suf, m := binary.Uvarint(rec[1+n:])
				want := string(before[:pre]) + string(rec[1+n+m:]) + string(before[len(before)-int(suf):])
				if string(got) != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
			if before = nil; p.Kind == KindEvent && len(got) <= MaxReference {
				before = got
			}
		}
	})
}
