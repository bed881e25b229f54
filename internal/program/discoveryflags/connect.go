package discoveryflags

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
)

// Between attempts to reach a server at the start.
const pauseMin, pauseMax = 100 * time.Millisecond, 2 * time.Second

// attemptMin is what an attempt gets at least, so that one at the deadline, or without any wait, can succeed.
const attemptMin = 500 * time.Millisecond

// Registry connects to etcd. While it does not answer it is tried again until deadline; then the last error is
// returned.
func (s Settings) Registry(ctx context.Context, deadline time.Time, log *slog.Logger) (*etcd.Registry, error) {
	cfg := s.Etcd
	cfg.Logger = log
	return persist(ctx, deadline, log, "etcd", "--etcd-endpoints", func() (*etcd.Registry, error) {
		// Not DialTimeout: that bounds its later requests too.
		ctx, cancel := context.WithTimeout(ctx, max(time.Until(deadline), attemptMin))
		defer cancel()
		return etcd.New(ctx, cfg)
	})
}

// Deliverer connects to NATS, as Registry does. name is this process for people.
func (s Settings) Deliverer(ctx context.Context, deadline time.Time, name string, log *slog.Logger) (*nats.Deliverer,
	error) {
	cfg := s.NATS
	cfg.Name, cfg.Logger = name, log
	return persist(ctx, deadline, log, "NATS", "--nats-url",
		func() (*nats.Deliverer, error) { return nats.New(ctx, cfg) })
}

// Deadline is until when the servers may take to answer.
func (s Settings) Deadline() time.Time { return time.Now().Add(s.Wait) }

func persist[T any](ctx context.Context, deadline time.Time, log *slog.Logger, server, flag string,
	connect func() (T, error)) (T, error) {
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		v, err := connect()
		if err != nil {
			err = fmt.Errorf("%s: %w", flag, err)
		}
		var unreachable *etcd.UnreachableError
		if err == nil || ctx.Err() != nil || !(errors.As(err, &unreachable) ||
			errors.Is(err, discovery.ErrUnavailable)) {
			return v, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return v, err
		}
		log.Warn(server+" does not answer yet, trying again", "for", left.Round(100*time.Millisecond), "flag",
			"--wait-for-discovery", "error", err)
		t := time.NewTimer(min(pause, left))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return v, err
		}
	}
}
