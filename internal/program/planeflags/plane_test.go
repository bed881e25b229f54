package planeflags

import (
	"reflect"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
)

// TestSettingsReachThePlane takes flags to the two configs of the plane, where 0 means the default and negative off.
func TestSettingsReachThePlane(t *testing.T) {
	f, err := parse(t, "--response-plane=tcp", "--lanes=2", "--quic-lanes=4", "--stream-window=32KiB",
		"--keep-alive-interval=2s",
		"--idle-timeout=6s", "--active-ping-interval=0s", "--resume-timeout=0s", "--batch-gap-max=0s", "--urgent=off",
		"--dial=on-demand",
		"--bind-addr=127.0.0.1:7000", "--advertise-addr=node-1", "--server-endpoints=3")
	if err != nil {
		t.Fatal(err)
	}
	s := f.Settings()
	transports, id := build(t, s, nil)
	front := s.Frontend(id, transports, nil)
	if err := front.Validate(); err != nil {
		t.Error(err)
	}
	if want := (responseplane.FrontendConfig{
		Identity: id, Transports: transports, Lanes: 2, PlaneLanes: map[string]int{transport.PlaneQUIC: 4},
		StreamWindow:      32 << 10,
		KeepAliveInterval: 2 * time.Second, IdleTimeout: 6 * time.Second, ActivePingInterval: -1, ResumeTimeout: -1,
		BatchGapMax: -1,
		NoUrgent:    true, Dial: responseplane.DialOnDemand, ShrinkThreshold: mux.DefaultShrink,
		LaneLog: mux.DefaultLog,
	}); !reflect.DeepEqual(front, want) {
		t.Errorf("frontend\n got %+v\nwant %+v", front, want)
	}
	worker := s.Worker(id, transports, nil)
	if err := worker.Validate(); err != nil {
		t.Error(err)
	}
	if want := (responseplane.WorkerConfig{
		Identity: id, Transports: transports, BindAddr: "127.0.0.1:7000", AdvertiseAddr: "node-1", ServerEndpoints: 3,
		KeepAliveInterval: 2 * time.Second, IdleTimeout: 6 * time.Second, ActivePingInterval: -1, ResumeTimeout: -1,
		BatchGapMax: -1, NoUrgent: true,
		LaneLog: mux.DefaultLog, MaxReplayBytes: mux.DefaultMaxReplay,
	}); !reflect.DeepEqual(worker, want) {
		t.Errorf("worker\n got %+v\nwant %+v", worker, want)
	}
}

// TestDefaultsAgree holds the defaults of the flags against those of the plane: the same program without a flag and a
// library user with a zero config must get the same plane.
func TestDefaultsAgree(t *testing.T) {
	f, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	s := f.Settings()
	transports, id := build(t, s, nil)
	front := s.Frontend(id, transports, nil)
	if front.Dial != responseplane.DialEager || front.NoUrgent || len(front.PlaneLanes) != 0 {
		t.Errorf("defaults of the switches: %+v", front)
	}
	for name, pair := range map[string][2]any{
		"lanes": {front.Lanes, 1}, "stream window": {front.StreamWindow, mux.DefaultWindow},
		"keep-alive interval": {front.KeepAliveInterval, mux.DefaultKeepAlive}, "idle timeout": {front.IdleTimeout,
			mux.DefaultIdle},
		"active PING interval": {front.ActivePingInterval, mux.DefaultActivePing},
		"resume timeout":       {front.ResumeTimeout, mux.DefaultResume},
		"shrink threshold":     {front.ShrinkThreshold, mux.DefaultShrink},
		"batch gap":            {front.BatchGapMax, mux.DefaultGapMax},
		"UDP receive buffer":   {s.UDPRecvBuffer, quic.DefaultRecvBuffer}, "UDP send buffer": {s.UDPSendBuffer,
			quic.DefaultSendBuffer},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: the flag's default is %v, the library's %v", name, pair[0], pair[1])
		}
	}
	if s.ServerEndpoints != responseplane.DefaultServerEndpoints {
		t.Errorf("--server-endpoints %d, the plane's default is %d", s.ServerEndpoints,
			responseplane.DefaultServerEndpoints)
	}
}
