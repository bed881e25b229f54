package responseplane_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func TestAttachRefuses(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{workers: 2})
		a, b := r.procs[0], r.procs[1]
		res := r.mint(t, a, responseplane.MintOptions{})
		refused := func(what string, terms []byte, sentinel error, code responseplane.Code, retryable bool) {
			t.Helper()
			w, err := a.worker.Attach(terms)
			if w != nil {
				t.Fatalf("%s: got a Writer", what)
			}
			e := wantEnd(t, err, sentinel, responseplane.EndRefused, code, retryable)
			if e.Node != a.nodeID() {
				t.Errorf("%s: the error names node %s", what, e.Node)
			}
		}
		other := r.mint(t, b, responseplane.MintOptions{})
		refused("terms of another node", other.Terms(), responseplane.ErrUnavailable, responseplane.CodeNoWorker, true)
		refused("no terms", nil, responseplane.ErrFailed, responseplane.CodeBadRequest, false)
		refused("half the terms", res.Terms()[:40], responseplane.ErrFailed, responseplane.CodeBadRequest, false)
		change := func(at int) []byte { // docs/wire.md, section 5
			terms := bytes.Clone(res.Terms())
			terms[at]++
			return terms
		}
		refused("an unknown frontend", change(4+3), responseplane.ErrUnavailable, responseplane.CodeNoWorker, true)
		refused("an unknown link", change(36+7), responseplane.ErrUnavailable, responseplane.CodeNoWorker, true)
		refused("a slot that the key does not cover", change(44), responseplane.ErrUnavailable,
			responseplane.CodeNoWorker, true)
		version := bytes.Clone(res.Terms())
		version[1]++
		refused("a version of the future", version, responseplane.ErrUnavailable, responseplane.CodeUnsupported, false)

		w, err := a.worker.Attach(res.Terms()) // all that has left them usable
		if err != nil {
			t.Fatal(err)
		}
		refused("terms that were used", res.Terms(), responseplane.ErrUnavailable, responseplane.CodeNoWorker, true)
		if err := w.Complete(nil); err != nil {
			t.Fatal(err)
		}
		refused("terms of a response that has ended", res.Terms(), responseplane.ErrUnavailable,
			responseplane.CodeNoWorker, true)
		_ = next(t, res)
	})
}

// TestAttachBusy: a worker whose replay bound is taken refuses, and takes again when a response has ended.
func TestAttachBusy(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net,
			rigConfig{worker: func(c *responseplane.WorkerConfig) { c.MaxReplayBytes = 2*64<<10 + 32<<10 }})
		p := r.procs[0]
		r.open(t, p)
		_, second := r.open(t, p)
		res := r.mint(t, p, responseplane.MintOptions{})
		_, err := p.worker.Attach(res.Terms())
		wantEnd(t, err, responseplane.ErrBusy, responseplane.EndRefused, responseplane.CodeBusy, true)
		if err := second.Complete(nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the acknowledgement of the END", func() bool {
			st := p.worker.Stats()
			return st.CommittedBytes-st.LogBytes == 64<<10
		})
		w, err := p.worker.Attach(res.Terms())
		if err != nil {
			t.Fatalf("terms that were refused as busy must stay usable: %v", err)
		}
		if err := w.Complete(nil); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMintBusy: a frontend whose buffers are promised refuses before it asks anybody.
func TestMintBusy(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](),
		rigConfig{front: func(c *responseplane.FrontendConfig) { c.MaxBufferedBytes = 1024*4096 + 4096 - 1 }})
	p := r.procs[0]
	first := r.mint(t, p, responseplane.MintOptions{})
	_, err := r.front.Mint(t.Context(), p.nodeID(), responseplane.MintOptions{})
	e := wantEnd(t, err, responseplane.ErrBusy, responseplane.EndRefused, responseplane.CodeBusy, true)
	if e.Node != p.nodeID() {
		t.Errorf("the error names node %s", e.Node)
	}
	_ = first.Close()
	r.mint(t, p, responseplane.MintOptions{})
}

func TestAttachAfterClose(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{})
	res := r.mint(t, r.procs[0], responseplane.MintOptions{})
	_ = r.procs[0].worker.Close()
	if _, err := r.procs[0].worker.Attach(res.Terms()); !errors.Is(err, responseplane.ErrClosed) {
		t.Errorf("got %v, expected ErrClosed", err)
	}
}

// FuzzAttach: terms travel a path that is not ours, so whatever comes must be refused by type and leave nothing behind.
func FuzzAttach(f *testing.F) {
	id := identity(f)
	tr := planes()[transport.PlaneMemory]()(f, id)
	worker, err := responseplane.NewWorker(responseplane.WorkerConfig{Identity: id,
		Transports: []transport.Transport{tr}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = worker.Close(); _ = tr.Close() })
	good := make([]byte, 80) // version 1 of link 1, slot 1.1, number 1, window 64 KiB: docs/wire.md, section 5
	good[1], good[43], good[46], good[47], good[55], good[61] = 1, 1, 1, 1, 1, 1
	f.Add([]byte{})
	f.Add([]byte{0, 1})
	f.Add(good)
	f.Add(append(bytes.Clone(good), "a longer encoding of the future"...))
	f.Add(bytes.Repeat([]byte{0xff}, len(good)))
	f.Fuzz(func(t *testing.T, terms []byte) {
		if len(terms) >= 36 {
			copy(terms[20:36], id.ID[:]) // past the first check: for this node
		}
		w, err := worker.Attach(terms)
		var e *responseplane.Error
		if w != nil || !errors.As(err, &e) || e.Kind != responseplane.EndRefused {
			t.Fatalf("got %v, %v; expected a refusal", w, err)
		}
		if e.Code != responseplane.CodeBadRequest && e.Code != responseplane.CodeNoWorker &&
			e.Code != responseplane.CodeUnsupported {
			t.Errorf("refused as %s", e.Code)
		}
		if st := worker.Stats(); st.OpenStreams != 0 || st.CommittedBytes != 0 {
			t.Errorf("%d streams and %d bytes are left", st.OpenStreams, st.CommittedBytes)
		}
	})
}
