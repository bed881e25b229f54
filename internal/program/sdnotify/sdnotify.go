// Package sdnotify tells systemd how a program is: units of Type=notify wait for Ready, and restart a program whose
// watchdog falls silent. Without systemd (no NOTIFY_SOCKET in the environment) it does nothing.
package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier sends the states of one process. Its methods may be called concurrently; a nil Notifier does nothing.
type Notifier struct {
	log    *slog.Logger
	stop   context.CancelFunc
	joined chan struct{} // nil: no watchdog was asked for
	once   sync.Once
}

// Start reads the environment and, when the unit has WatchdogSec=, keeps the watchdog quiet at half of its interval for
// as long as alive returns nil. alive must end with its context, which lasts a quarter of the interval; nil means that
// running is enough. A nil log discards.
func Start(log *slog.Logger, alive func(context.Context) error) (*Notifier, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	n := &Notifier{log: log, stop: func() {}}
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("WATCHDOG_USEC or WATCHDOG_PID, which systemd sets for WatchdogSec=: %w", err)
	}
	if interval <= 0 {
		return n, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop, n.joined = stop, make(chan struct{})
	go n.watch(ctx, interval, alive) // joined by Close
	return n, nil
}

func (n *Notifier) watch(ctx context.Context, interval time.Duration, alive func(context.Context) error) {
	defer close(n.joined)
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		if err := check(ctx, interval/4, alive); err == nil {
			n.send(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			n.log.Error("the watchdog gets no sign of life, systemd will restart this process", "interval", interval,
				"error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func check(ctx context.Context, limit time.Duration, alive func(context.Context) error) error {
	if alive == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return alive(ctx)
}

// Ready says that the process serves; status is a line for `systemctl status`.
func (n *Notifier) Ready(status string) { n.state(daemon.SdNotifyReady, status) }

// Stopping says that the process has begun to leave.
func (n *Notifier) Stopping(status string) { n.state(daemon.SdNotifyStopping, status) }

func (n *Notifier) state(state, status string) {
	if n != nil {
		n.send(state + "\nSTATUS=" + status)
	}
}

// send is one datagram. The service manager takes it or it is lost: a process does not wait for its supervisor.
func (n *Notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("systemd could not be notified", "state", state, "error", err)
	}
}

// Close ends the watchdog and joins it. It is idempotent.
func (n *Notifier) Close() error {
	if n == nil {
		return nil
	}
	n.once.Do(func() {
		n.stop()
		if n.joined != nil {
			<-n.joined
		}
	})
	return nil
}
