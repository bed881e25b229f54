package lanes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
)

// OffloadConfig says what Offload runs.
type OffloadConfig struct {
	Bytes     int64 // of a transfer
	Transfers int   // of a run, one after the other over one lane
	Runs      int   // of each setting, interleaved
	Log       *slog.Logger
	Progress  func(string)
}

// Run is one run over one lane. What is "for each MB" is of both ends together, but the calls: sends of the acceptor,
// receives of the dialler.
type Run struct {
	GSO       bool    `json:"gso"`
	GRO       bool    `json:"gro"`
	Run       int     `json:"run"`
	MBS       float64 `json:"mb_per_s"`
	CPU       float64 `json:"cpu_ms_per_mb"`
	Datagrams float64 `json:"datagrams_per_mb"`
	SendCalls float64 `json:"send_calls_per_mb"`
	RecvCalls float64 `json:"receive_calls_per_mb"`
	Drops     uint64  `json:"drops"` // by the sockets and inside quic-go
}

// Name is the setting.
func (r Run) Name() string {
	switch {
	case r.GSO && r.GRO:
		return "GSO + GRO"
	case r.GSO:
		return "GSO"
	default:
		return "neither"
	}
}

// Offloads are the settings that are measured.
func Offloads() []Run { return []Run{{}, {GSO: true}, {GSO: true, GRO: true}} }

// Offload runs Transfers of Bytes over one lane, without offload, with GSO, and with GSO and GRO.
func Offload(ctx context.Context, cfg OffloadConfig) (runs []Run, err error) {
	settings := Offloads()
	for rep := range cfg.Runs {
		for _, s := range benchtable.Order(settings, rep) {
			s.Run = rep + 1
			if err := s.measure(ctx, cfg); err != nil {
				return runs, fmt.Errorf("a lane with %s: %w", s.Name(), err)
			}
			runs = append(runs, s)
		}
		if cfg.Progress != nil {
			cfg.Progress(fmt.Sprintf("lanes: repetition %d of %d is done", rep+1, cfg.Runs))
		}
	}
	return runs, nil
}

func (r *Run) measure(ctx context.Context, cfg OffloadConfig) (err error) {
	p, err := newPair(ctx, quic.Config{DisableGSO: !r.GSO, DisableGRO: !r.GRO}, path{}, cfg.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	stop := context.AfterFunc(ctx, func() { _ = p.dialled.Close() })
	defer stop()
	if err := transfer(p.accepted, p.dialled, 1<<20); err != nil { // the windows and the packet size have grown
		return err
	}
	before, cpu, began := counters(p), processCPU(), time.Now()
	for range cfg.Transfers {
		if err := transfer(p.accepted, p.dialled, cfg.Bytes); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
	took, used, after := time.Since(began), processCPU()-cpu, counters(p)
	mb := float64(cfg.Bytes) * float64(cfg.Transfers) / 1e6
	r.MBS, r.CPU = mb/took.Seconds(), float64(used)/float64(time.Millisecond)/mb
	r.Datagrams = float64(after[1].DatagramsOut-before[1].DatagramsOut) / mb
	r.SendCalls = float64(after[1].SendCalls-before[1].SendCalls) / mb
	r.RecvCalls = float64(after[0].RecvCalls-before[0].RecvCalls) / mb
	for i := range after {
		r.Drops += after[i].SocketDrops - before[i].SocketDrops + after[i].LibraryDrops - before[i].LibraryDrops
	}
	return nil
}

// counters are the dialler's and the acceptor's.
func counters(p *pair) [2]transport.Counters {
	return [2]transport.Counters{p.dialler.Counters(), p.acceptor.Counters()}
}

// processCPU is what this process has used, user and system.
func processCPU() time.Duration {
	user, system := ProcessCPU()
	return user + system
}
