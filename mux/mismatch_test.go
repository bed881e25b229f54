package mux

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// warned keeps the errors of a log's warnings.
type warned struct {
	mu   sync.Mutex
	errs []error
}

func (w *warned) Enabled(context.Context, slog.Level) bool { return true }
func (w *warned) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *warned) WithGroup(string) slog.Handler            { return w }
func (w *warned) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && r.Level >= slog.LevelWarn {
			w.mu.Lock()
			w.errs = append(w.errs, err)
			w.mu.Unlock()
		}
		return true
	})
	return nil
}

func (w *warned) first() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) == 0 {
		return nil
	}
	return w.errs[0]
}

// TestPlaneMismatch has a frontend dial a port with TLS where the worker speaks plain TCP, and the other way round:
// both say what they expected and what came.
func TestPlaneMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		front, work         bool // TLS
		frontSays, workSays []string
	}{
		"TLS on a plain port": {front: true,
			frontSays: []string{"expected TLS", "which are not TLS", "must use the same plane"},
			workSays:  []string{"expected a lane of plane tcp", "a record of TLS", "must use the same plane"}},
		"plain TCP on a TLS port": {work: true,
			frontSays: []string{"expected a lane of plane tcp", "a record of TLS", "must use the same plane"},
			workSays:  []string{"expected TLS", "which are not TLS", "must use the same plane"}},
	} {
		t.Run(name, func(t *testing.T) {
			log := &warned{}
			front, frontID := mismatched(t, c.front, nil)
			work, workID := mismatched(t, c.work, slog.New(log))
			ln, err := work.Listen(t.Context(), "127.0.0.1:0", 1)
			if err != nil {
				t.Fatal(err)
			}
			send, err := NewWorkerNode(Config{ID: workID, Logger: slog.New(log)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { send.Close() })
			if err := send.Serve(ln); err != nil {
				t.Fatal(err)
			}
			recv, err := NewFrontendNode(Config{ID: frontID}, front)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { recv.Close() })
			address := ln.Endpoints()[0].String()
			at := []PeerPlane{{Plane: front.Plane(), Endpoints: []string{address}}}
			if err := recv.AddPeer(Peer{ID: workID, Planes: at}); err != nil {
				t.Fatal(err)
			}
			var frontErr, workErr error
			for deadline := time.Now().Add(30 * time.Second); frontErr == nil ||
				workErr == nil; time.Sleep(time.Millisecond) {
				st, _ := recv.State(workID)
				frontErr, workErr = st.Err, log.first()
				if time.Now().After(deadline) {
					t.Fatalf("the frontend says %v, the worker %v", frontErr, workErr)
				}
			}
			for who, x := range map[string]struct {
				err  error
				says []string
			}{"frontend": {frontErr, append(c.frontSays, address)}, "worker": {workErr, c.workSays}} {
				if _, ok := errors.AsType[*transport.ProtocolError](x.err); !ok {
					t.Errorf("the %s says %T %v", who, x.err, x.err)
				}
				for _, s := range x.says {
					if !strings.Contains(x.err.Error(), s) {
						t.Errorf("the %s does not say %q: %v", who, s, x.err)
					}
				}
			}
		})
	}
}

func mismatched(t *testing.T, secure bool, log *slog.Logger) (transport.Transport, transport.NodeID) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := tcp.New(tcp.Config{Identity: id, TLS: secure, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, id.ID
}
