package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

// Probe asks the admin listener at addr for a path, "/livez" or "/readyz". A host that stands for all interfaces, or
// none, means this machine. The error is the answer's first line when the process says that it is not well.
func Probe(ctx context.Context, addr, path string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("admin: probe %s: %w", addr, err)
	}
	// A number, not "localhost": an image made from nothing has no file that says what that is. A listener on [::]
	// takes IPv4 too.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return fmt.Errorf("admin: probe %s: %w", addr, err)
	}
	// A transport of its own: no proxy of the environment stands between a process and itself, and no connection stays
	// behind.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("admin: probe: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("admin: probe %s%s: %w", addr, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		reason, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		return &UnhealthyError{Path: path, Status: resp.StatusCode, Reason: reason}
	}
	return nil
}

// UnhealthyError says that a process answered, and that it is not well.
type UnhealthyError struct {
	Path   string // that was asked for
	Status int    // HTTP
	Reason string // what it said, one line
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.Path, e.Status, e.Reason)
}

// AddHealthcheck declares the command `healthcheck`, for health checks of images without a shell or curl: it asks a
// process on this machine through its admin address and ends with 0 or 1. The program's --admin-addr is declared
// before; where its default lets the kernel choose the port, the command needs the flag or its environment twin.
func AddHealthcheck(app *cli.App) {
	paths := map[string]string{"ready": "/readyz", "live": "/livez"}
	c := app.Command("healthcheck", "asks a running process of this program on this machine whether it is well")
	g := c.Group("Process")
	addr := g.Addr("admin-addr", app.Values()["admin-addr"], "the --admin-addr of the process")
	probe := g.Enum("probe", "ready", []string{"ready", "live"}, "ready: it should get work; live: it needs no restart")
	timeout := g.Duration("timeout", 3*time.Second, cli.Range(time.Millisecond, time.Minute),
		"how long the answer may take")
	c.Check(func() error {
		if _, port, err := net.SplitHostPort(*addr); err == nil && port == "0" {
			return errors.New("--admin-addr " + *addr +
				" has no port that could be asked: give the process and this command the same fixed one, such as " +
				":9091 (LANEWAY_ADMIN_ADDR serves both)")
		}
		return nil
	})
	c.Handle(func(ctx context.Context, _ *slog.Logger) error {
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		if err := Probe(ctx, *addr, paths[*probe]); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("no answer within --timeout %v: %w", *timeout, err)
			}
			return err
		}
		return nil
	})
}
