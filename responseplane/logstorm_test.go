package responseplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// logBuffer is a log's text.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// bounded says whether the log has lines with a text, and not as many as there were events.
func (l *logBuffer) bounded(t *testing.T, began time.Time, events int, text string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := strings.Count(l.b.String(), text)
	if most := seldom.Burst * (1 + int(time.Since(began)/seldom.Every)); n == 0 || n > most {
		t.Errorf("%d events made %d lines of %q, want 1 to %d:\n%.2000s", events, n, text, most, l.b.String())
	}
}

// script is a registry that tells what a test wrote.
type script struct {
	discovery.Registry
	events []discovery.Event
}

func (s script) Watch(context.Context) (<-chan discovery.Event, error) {
	c := make(chan discovery.Event, len(s.events)+1)
	for _, e := range s.events {
		c <- e
	}
	c <- discovery.Event{Kind: discovery.Closed, Err: discovery.ErrClosed}
	return c, nil
}

// TestLogOfBadRecords: whoever may write to the registry cannot fill the disks of all frontends.
func TestLogOfBadRecords(t *testing.T) {
	const events = 300
	var log logBuffer
	id := identity(t)
	tr := memory.NewNetwork(memory.Config{}).Transport(id.ID)
	f, err := responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id,
		Transports: []transport.Transport{tr},
		Logger:     slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, f, tr)
	var s script
	for i := range events {
		w := discovery.Worker{ID: fmt.Sprint("w-", i)}
		s.events = append(s.events, discovery.Event{Kind: discovery.Invalid, Worker: w, Err: errors.New("no JSON")},
			discovery.Event{Kind: discovery.Put, Worker: w}) // no node
	}
	began := time.Now()
	if err := f.Follow(t.Context(), s); !errors.Is(err, discovery.ErrClosed) {
		t.Fatal(err)
	}
	log.bounded(t, began, events, "does not hold")
	log.bounded(t, began, events, "cannot be used")
}

// TestLogOfBadLanes: whoever reaches a worker's port cannot fill its disk.
func TestLogOfBadLanes(t *testing.T) {
	const lanes = 100
	var log logBuffer
	id := identity(t)
	n := memory.NewNetwork(memory.Config{})
	tr, stranger := n.Transport(id.ID), n.Transport(identity(t).ID)
	w, err := responseplane.NewWorker(responseplane.WorkerConfig{Identity: id, Transports: []transport.Transport{tr},
		BindAddr: "127.0.0.1:0",
		Logger:   slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range lanes {
		c, err := stranger.Dial(t.Context(), transport.DialRequest{Address: w.Descriptor().Planes[0].Endpoints[0]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n" + strings.Repeat("x", 256))); err != nil {
			t.Logf("it hung up early: %v", err)
		}
		for buf := make([]byte, 256); err == nil; _, err = c.Read(buf) {
		}
		_ = c.Close()
	}
	closeAll(t, w, tr, stranger) // the lanes' goroutines have ended
	log.bounded(t, began, lanes, "a connection was refused")
}
