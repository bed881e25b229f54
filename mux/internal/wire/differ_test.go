package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestDecodeStdin is the Go side of the differential fuzz of the Python worker (python/tests/test_differ.py): it reads
// byte strings, each behind its length in four bytes, and prints for each what the decoders made of it.
func TestDecodeStdin(t *testing.T) {
	if os.Getenv("LANEWAY_DECODE_STDIN") == "" {
		t.Skip("python/tests/test_differ.py runs this")
	}
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(in, b); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "=%s\n", described(b))
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// described is what one byte string says: the first byte chooses the decoder, the rest is a record or an encoding.
func described(b []byte) string {
	if len(b) == 0 {
		return "none"
	}
	which, b := b[0], b[1:]
	switch which % 4 {
	case 0:
		t, err := ParseTerms(b)
		if err != nil {
			return "bad"
		}
		key := NewKey([16]byte{1}, [16]byte{2})
		return fmt.Sprintf("terms %x %x %d %d %d %d %d %d %t", t.Frontend, t.Worker, t.Link, t.Slot, t.Number, t.Lane,
			t.Window, t.Key, key.Holds(b))
	case 1:
		t, err := ParseOpenTerms(b)
		if err != nil {
			return "bad"
		}
		return fmt.Sprintf("openterms %x %x", t.Frontend, t.ID)
	}
	if len(b) < HeaderSize {
		return "short"
	}
	h := ParseHeader(b)
	if err := h.Check(which%4 == 2); err != nil {
		return "header"
	}
	if h.Kind.Skipped() {
		return fmt.Sprintf("skip %d %t", h.Length, h.Kind.Counted())
	}
	if len(b) < HeaderSize+h.Length {
		return "more"
	}
	return describedBody(h, b[HeaderSize:HeaderSize+h.Length])
}

func describedBody(h Header, body []byte) string {
	var s string
	var err error
	switch h.Kind {
	case Hello:
		var v HelloBody
		v, err = ParseHello(body)
		s = words(v.Lowest, v.Highest, v.Features, v.Link, v.Lane, v.Lanes, v.MaxStreams, v.Serial, v.Received, v.Log,
			v.Resume.Milliseconds(), v.Pings.Idle.Milliseconds(), v.Pings.ActiveSilence.Milliseconds(),
			hex.EncodeToString(v.Node[:]), hex.EncodeToString(v.OwnSecret[:]), hex.EncodeToString(v.PeerSecret[:]))
	case Ping, Pong:
		var x, y uint64
		x, y, err = ParsePing(h.Kind, body)
		s = words(x, y)
	case Ack:
		var x uint64
		x, err = ParseAck(body)
		s = words(x)
	case GoAway:
		var code GoAwayCode
		code, _, err = ParseGoAway(body)
		s = words(uint16(code))
	case Open:
		var x, y uint64
		x, y, err = ParseOpen(h.Slot, body)
		s = words(x, y)
	case Consumed:
		var x, y uint64
		x, y, err = ParseConsumed(h.Slot, body)
		s = words(x, y)
	case Data, DataMore:
		s = hex.EncodeToString(body)
	case End:
		var v EndBody
		v, err = ParseEnd(h.Slot, body)
		s = words(v.Number, uint8(v.Type), v.Retryable, v.Code, v.Records, v.Bytes, hex.EncodeToString(v.Trailer))
	case Claim:
		var v [16]byte
		v, err = ParseClaim(body)
		s = hex.EncodeToString(v[:])
	case Stop:
		var x uint64
		x, err = ParseStop(h.Slot, body)
		s = words(x)
	case Kill:
		var x uint64
		var why EndType
		x, why, err = ParseKill(h.Slot, body)
		s = words(x, uint8(why))
	case Grant:
		var id [16]byte
		var code GrantCode
		var terms []byte
		id, code, terms, err = ParseGrant(body)
		s = words(hex.EncodeToString(id[:]), uint16(code), hex.EncodeToString(terms))
	}
	if err != nil {
		return "bad"
	}
	return fmt.Sprintf("%02x %d %s", uint8(h.Kind), h.Slot, s)
}

func words(fields ...any) string { return strings.TrimSuffix(fmt.Sprintln(fields...), "\n") }
