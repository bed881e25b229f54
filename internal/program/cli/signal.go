package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// oneEvent is how long after the first signal further ones still belong to the same event: GNU timeout signals its
// child and then the group that the child is in, a terminal that closes sends SIGHUP after a shell's SIGTERM. Only a
// later one is a second wish.
const oneEvent = time.Second

// notify sends the signals that end a program to c. One that was ignored when the program started stays ignored: nohup
// means it.
func notify(c chan<- os.Signal) (stop func()) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	signal.Notify(c, ends...)
	return func() { signal.Stop(c) }
}

// watchSignals cancels on the first signal and exits on the second. stop ends it and joins its goroutine.
func (a *App) watchSignals(cancel context.CancelCauseFunc, log *slog.Logger) (stop func()) {
	signals := make(chan os.Signal, 2)
	unsubscribe := a.notify(signals)
	done, joined := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop, which joins it
		defer close(joined)
		var first time.Time
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				switch {
				case first.IsZero():
					first = time.Now()
					log.Info("stopping; a second signal, after a second or more, exits at once", "signal", s.String())
					cancel(&SignalError{Signal: s})
				case time.Since(first) < oneEvent:
					log.Debug("one more signal of the same event", "signal", s.String())
				default:
					log.Error("second signal, exiting without cleaning up", "signal", s.String())
					a.exit(exitSignal)
					return
				}
			}
		}
	}()
	return func() {
		unsubscribe()
		close(done)
		<-joined
	}
}
