package planeflags

import (
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// Frontend is the frontend's part of the settings. The caller adds its name, what it delivers with and how it routes.
func (s Settings) Frontend(id *transport.Identity, transports []transport.Transport,
	log *slog.Logger) responseplane.FrontendConfig {
	dial := responseplane.DialEager
	if s.DialOnDemand {
		dial = responseplane.DialOnDemand
	}
	return responseplane.FrontendConfig{
		Identity: id, Transports: transports, Logger: log,
		Lanes: s.Lanes, PlaneLanes: s.PlaneLanes(), StreamWindow: s.StreamWindow, Dial: dial,
		KeepAliveInterval: s.KeepAlive, IdleTimeout: s.Idle,
		ActivePingInterval: zeroIsOff(s.ActivePing), ResumeTimeout: zeroIsOff(s.Resume),
		BatchGapMax: zeroIsOff(s.BatchGap),
		NoUrgent:    !s.Urgent, ShrinkThreshold: s.ShrinkThreshold, LaneLog: s.LaneLog,
	}
}

// Worker is the worker's part of the settings. The caller adds its name and bounds.
func (s Settings) Worker(id *transport.Identity, transports []transport.Transport,
	log *slog.Logger) responseplane.WorkerConfig {
	return responseplane.WorkerConfig{
		Identity: id, Transports: transports, Logger: log,
		BindAddr: s.BindAddr, AdvertiseAddr: s.AdvertiseAddr, ServerEndpoints: s.ServerEndpoints,
		KeepAliveInterval: s.KeepAlive, IdleTimeout: s.Idle,
		ActivePingInterval: zeroIsOff(s.ActivePing), ResumeTimeout: zeroIsOff(s.Resume),
		BatchGapMax: zeroIsOff(s.BatchGap),
		NoUrgent:    !s.Urgent, LaneLog: s.LaneLog, MaxReplayBytes: s.MaxReplay,
	}
}

// zeroIsOff turns a flag's 0 into the config's: there 0 is the default and negative is off.
func zeroIsOff(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
