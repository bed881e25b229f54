package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// startLimit bounds how long a server may take to be ready on a machine that is busy.
const startLimit = 60 * time.Second

func startEtcd(args []string, dir *dataDir) (*running, error) {
	fs := flag.NewFlagSet("devservers etcd", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:0", "`host:port` for clients; port 0 takes a free one")
	data := fs.String("data-dir", "", "data `directory`; empty makes one and removes it at the end")
	removeOrphaned := fs.Bool("remove-when-orphaned", false,
		"remove --data-dir on SIGHUP and when standard input is closed: the process that made it has gone")
	level := fs.String("log-level", "error", "debug, info, warn or error; goes to stderr")
	cert := fs.String("tls-cert", "", "serve clients over TLS with this certificate `file`")
	key := fs.String("tls-key", "", "the key `file` of --tls-cert")
	if err := parse(fs, args); err != nil {
		return nil, err
	}
	if (*cert == "") != (*key == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}

	dir.path, dir.ifOrphaned = *data, *removeOrphaned
	if dir.path == "" {
		tmp, err := os.MkdirTemp("", "laneway-etcd-")
		if err != nil {
			return nil, err
		}
		dir.path, dir.own = tmp, true
	}
	if err := hasRoom(dir.path, etcdRoom); err != nil {
		return nil, err
	}

	atomicLevel, err := zap.ParseAtomicLevel(*level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	logConfig := zap.NewProductionConfig()
	logConfig.Level = atomicLevel
	logConfig.DisableStacktrace = true
	logConfig.OutputPaths = []string{"stderr"}
	// What etcd cannot go on from, a disk that fills up say, it logs and panics with: an error is enough, and nothing
	// is left behind.
	gaveUp := exitHook{dir}
	logger, err := logConfig.Build(zap.WithPanicHook(gaveUp), zap.WithFatalHook(gaveUp))
	if err != nil {
		return nil, err
	}

	// Segments are allocated whole; 64 MB each is too much for a throw-away directory.
	wal.SegmentSizeBytes = 4 << 20

	scheme := "http"
	if *cert != "" {
		scheme = "https"
	}
	client := url.URL{Scheme: scheme, Host: *listen}
	cfg := embed.NewConfig()
	cfg.Name = "laneway-dev"
	cfg.Dir = dir.path
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	// A cluster of one has no peers: it listens on any free port, and what it advertises is only a name.
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.InitialClusterToken = fmt.Sprintf("laneway-dev-%d-%d", os.Getpid(), time.Now().UnixNano())
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: *cert, KeyFile: *key}
	// Short ticks: it elects itself in a moment, and the smallest lease that it grants is 1 s.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	// The JSON gateway dials the address that it was told to listen on, so it needs a port.
	cfg.EnableGRPCGateway = client.Port() != "0"
	cfg.BcryptCost = 4
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd on %s: %w", *listen, err)
	}
	stop := func() {
		atomicLevel.SetLevel(zapcore.FatalLevel) // etcd logs the closing of its own listeners as errors
		e.Close()
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		stop()
		return nil, fmt.Errorf("etcd on %s: %w", *listen, err)
	case <-time.After(startLimit):
		stop()
		return nil, fmt.Errorf("etcd on %s was not ready within %s", *listen, startLimit)
	}
	addr := url.URL{Scheme: scheme, Host: e.Clients[0].Addr().String()}
	return &running{ready: ready{Endpoints: []string{addr.String()}}, failed: e.Err(), stop: stop}, nil
}

// exitHook ends the process in the place of a panic of etcd's log.
type exitHook struct{ dir *dataDir }

// OnWrite is called after the entry was logged.
func (h exitHook) OnWrite(ce *zapcore.CheckedEntry, fields []zapcore.Field) {
	what := ce.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			what += ": " + err.Error()
		}
	}
	fmt.Fprintf(os.Stderr, "devservers: etcd gave up: %s\n", what)
	h.dir.remove()
	os.Exit(exitFailed)
}
