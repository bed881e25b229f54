package doctor

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/nats"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// smallPayload is under what size of the largest message a warning is given: NATS's own default.
const smallPayload = 1 << 20

// natsInfo is what a server says first, before anybody has logged in.
type natsInfo struct {
	Version    string `json:"version"`
	MaxPayload int64  `json:"max_payload"`
}

// checkNATS asks every server for its version, then does what the program does: a worker takes a request of its own, a
// frontend sends one to a worker that does not exist, which must be answered by "no responders".
func checkNATS(ctx context.Context, r *Report, cfg Config) {
	answered := 0
	list := strings.Split(cfg.Discovery.NATS.URL, ",")
	for _, at := range list {
		if checkNATSServer(ctx, r, cfg, strings.TrimSpace(at), len(list) == 1) {
			answered++
		}
	}
	if answered == 0 {
		return
	}
	said := &errorsSaid{}
	n := cfg.Discovery.NATS
	n.Name, n.DialTimeout, n.Logger = cfg.Program+" doctor", cfg.timeout, slog.New(said)
	d, err := nats.New(ctx, n)
	if err != nil {
		r.fail("nats", err.Error(), "correct --nats-url, and --nats-username, --nats-creds-file or --nats-nkey-file")
		return
	}
	defer d.Close()
	id := "doctor-" + strings.ToLower(rand.Text())
	subject := "laneway." + namespaceOf(cfg) + ".worker." + id
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	if cfg.Worker {
		probe := discovery.Worker{Schema: discovery.Schema, ID: id, Models: []string{"doctor"}, Node: discovery.Node{
			ID:     strings.Repeat("0", 31) + "1",
			Planes: []discovery.Plane{{Name: cfg.Plane.Planes[0], Endpoints: []string{"127.0.0.1:1"}}}, WireMin: 1,
			WireMax: 1}}
		s, err := d.Serve(ctx, probe, func(context.Context, discovery.Request) discovery.Reply {
			return discovery.Reply{Answer: discovery.Accepted}
		})
		if err != nil {
			r.fail("nats rights", said.with(err), "let this user subscribe to laneway."+namespaceOf(cfg)+".worker.*")
			return
		}
		defer func() { _ = s.Drain(ctx) }()
	}
	reply, err := d.Deliver(ctx, id, discovery.Request{ID: id})
	switch {
	case cfg.Worker && err == nil && reply.Answer == discovery.Accepted:
		r.ok("nats rights", "a request to a worker of this process arrives and is answered")
	case !cfg.Worker && errors.Is(err, discovery.ErrNoResponders):
		r.ok("nats rights", "requests to workers may be sent, and answers come back")
	case cfg.Worker && errors.Is(err, discovery.ErrNoResponders):
		r.fail("nats rights", said.with(errors.New("this user may not take requests: nobody was there for "+subject)),
			"let it subscribe to laneway."+namespaceOf(cfg)+".worker.* and to $SRV.>")
	case err == nil:
		r.fail("nats rights", "somebody answers for "+subject+", a worker that does not exist: "+reply.Answer.String(),
			"find who subscribes to laneway."+namespaceOf(cfg)+".worker.> with a wildcard")
	default:
		r.fail("nats rights", said.with(fmt.Errorf("no answer for %s: %w", subject, err)),
			"let this user publish to laneway."+namespaceOf(cfg)+
				".worker.* and subscribe to _INBOX.>; a worker also subscribes to the former and answers to the latter")
	}
}

func namespaceOf(cfg Config) string {
	if ns := cfg.Discovery.NATS.Namespace; ns != "" {
		return ns
	}
	return nats.DefaultNamespace
}

// checkNATSServer reads the line with which a server greets. Servers that speak TLS from the first byte, or WebSocket,
// do not greet so.
func checkNATSServer(ctx context.Context, r *Report, cfg Config, at string, only bool) bool {
	check := "nats " + hostOf(at)
	u, err := url.Parse(at)
	if err != nil || u.Hostname() == "" {
		r.fail(check, "is not a URL", "write it like nats://127.0.0.1:4222")
		return false
	}
	port := u.Port()
	if port == "" {
		port = "4222"
	}
	if u.Scheme == "ws" || u.Scheme == "wss" {
		r.ok(check, "speaks WebSocket, its version is not read")
		return true
	}
	bad := r.warn
	if only {
		bad = r.fail
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		bad(check, "does not answer: "+err.Error(),
			"look whether it runs and whether TCP to it gets through; correct --nats-url")
		return false
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetReadDeadline(deadline) // a connection that was just made takes one
	}
	line, err := bufio.NewReaderSize(c, 64<<10).ReadSlice('\n')
	rest, greets := strings.CutPrefix(string(line), "INFO ")
	var info natsInfo
	if err != nil || !greets || json.Unmarshal([]byte(rest), &info) != nil {
		r.warn(check, "takes connections but does not greet like NATS: it may speak TLS from the first byte",
			"look whether --nats-url is right")
		return true
	}
	if info.MaxPayload > 0 && info.MaxPayload < smallPayload {
		r.warn(check, fmt.Sprintf("version %s takes messages of at most %s: longer requests fail", info.Version,
			cli.FormatSize(info.MaxPayload)), "raise max_payload of the server")
		return true
	}
	r.ok(check, "version %s, messages of up to %s", info.Version, cli.FormatSize(info.MaxPayload))
	return true
}

// errorsSaid keeps the last error that the connection logged: the server's complaints about rights come that way.
type errorsSaid struct {
	mu   sync.Mutex
	last string
}

// Enabled implements slog.Handler.
func (e *errorsSaid) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (e *errorsSaid) Handle(_ context.Context, rec slog.Record) error {
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			e.mu.Lock()
			e.last = a.Value.String()
			e.mu.Unlock()
		}
		return true
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (e *errorsSaid) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e *errorsSaid) WithGroup(string) slog.Handler { return e }

// with adds it to an error's text.
func (e *errorsSaid) with(err error) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == "" {
		return err.Error()
	}
	return err.Error() + "; the server said: " + e.last
}
