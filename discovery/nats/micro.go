package nats

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	natsio "github.com/nats-io/nats.go"
	natsmicro "github.com/nats-io/nats.go/micro"

	"github.com/laneway-ai/laneway/discovery"
)

// serviceVersion is the version of what this package speaks, as a SemVer, as the micro protocol wants it.
const serviceVersion = "1.0.0"

// micro is the process's service: it answers PING, INFO and STATS of the NATS micro protocol.
type micro struct {
	d        *Deliverer
	identity natsmicro.ServiceIdentity
	started  time.Time
}

// newMicro subscribes to the nine control subjects. They end with the connection. d.mu is held.
func newMicro(d *Deliverer) (*micro, error) {
	m := &micro{d: d, started: time.Now().UTC(), identity: natsmicro.ServiceIdentity{
		Name: "laneway-" + d.cfg.Namespace, ID: rand.Text(), Version: serviceVersion,
		Metadata: map[string]string{"namespace": d.cfg.Namespace, "process": d.cfg.Name},
	}}
	for verb, answer := range map[natsmicro.Verb]func() any{
		natsmicro.PingVerb: m.ping, natsmicro.InfoVerb: m.info, natsmicro.StatsVerb: m.stats,
	} {
		for _, who := range [][2]string{{"", ""}, {m.identity.Name, ""}, {m.identity.Name, m.identity.ID}} {
			subject, err := natsmicro.ControlSubject(verb, who[0], who[1])
			if err != nil {
				return nil, err
			}
			_, err = d.nc.Subscribe(subject, func(msg *natsio.Msg) {
				if msg.Reply == "" {
					return
				}
				data, err := json.Marshal(answer())
				if err == nil {
					err = msg.Respond(data)
				}
				if err != nil && d.life.Err() == nil {
					d.cfg.Logger.Debug("nats: a micro request was not answered", "subject", subject, "err", err)
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (m *micro) ping() any {
	return natsmicro.Ping{ServiceIdentity: m.identity, Type: natsmicro.PingResponseType}
}

func (m *micro) info() any {
	info := natsmicro.Info{
		ServiceIdentity: m.identity, Type: natsmicro.InfoResponseType,
		Description: "Laneway workers: requests in, tokens over the response plane",
		Endpoints:   []natsmicro.EndpointInfo{},
	}
	for _, p := range m.places() {
		info.Endpoints = append(info.Endpoints, natsmicro.EndpointInfo{Name: p.worker.ID, Subject: p.sub.Subject,
			QueueGroup: p.sub.Queue, Metadata: map[string]string{
				"node": p.worker.Node.ID, "node_name": p.worker.Node.Name, "models": strings.Join(p.worker.Models, ","),
			}})
	}
	return info
}

func (m *micro) stats() any {
	stats := natsmicro.Stats{ServiceIdentity: m.identity, Type: natsmicro.StatsResponseType, Started: m.started,
		Endpoints: []*natsmicro.EndpointStats{}}
	for _, p := range m.places() {
		stats.Endpoints = append(stats.Endpoints, p.stats.snapshot(p))
	}
	return stats
}

func (m *micro) places() []*place {
	m.d.mu.Lock()
	out := make([]*place, 0, len(m.d.places))
	for _, p := range m.d.places {
		out = append(out, p)
	}
	m.d.mu.Unlock()
	slices.SortFunc(out, func(a, b *place) int { return strings.Compare(a.worker.ID, b.worker.ID) })
	return out
}

// endpointStats counts one worker's requests. A refusal counts as an error, with its reason.
type endpointStats struct {
	mu       sync.Mutex
	requests int
	errors   int
	last     string
	took     time.Duration
}

func (s *endpointStats) count(r discovery.Reply, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.took += took
	switch {
	case err != nil:
		s.errors, s.last = s.errors+1, err.Error()
	case r.Answer != discovery.Accepted:
		s.errors, s.last = s.errors+1, r.Answer.String()+": "+r.Reason
	}
}

func (s *endpointStats) snapshot(p *place) *natsmicro.EndpointStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &natsmicro.EndpointStats{Name: p.worker.ID, Subject: p.sub.Subject, QueueGroup: p.sub.Queue,
		NumRequests: s.requests, NumErrors: s.errors, LastError: s.last, ProcessingTime: s.took}
	if s.requests > 0 {
		out.AverageProcessingTime = s.took / time.Duration(s.requests)
	}
	return out
}
