package loadgen

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// sample is all that is read at one time: the scraped processes, this process and the machine.
type sample struct {
	at     time.Time
	procs  []*scrape // by scraper; nil where the scrape failed
	self   procstat.CPU
	selfOK bool
	host   procstat.HostCPU
	hostOK bool
}

// sampler takes samples once a second while a run lasts. Its samples belong to the goroutine of loop until that has
// ended.
type sampler struct {
	e        *engine
	scrapers []*scraper
	http     *http.Client
	samples  []sample
	failed   []error // latest failure of each scraper
	debugs   debugs
}

// debugEvery is how many samples pass between two readings of the frontends' /debug/plane: it names every lane, so it
// is larger than the metrics.
const debugEvery = 5

// sampleInterval is how often samples are taken, and sampleTimeout how long a scrape may take: a machine that is busy
// answers late, and a late sample is still a sample.
const (
	sampleInterval = time.Second
	sampleTimeout  = 5 * time.Second
)

func newSampler(e *engine) *sampler {
	s := &sampler{e: e, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1,
		DisableCompression: true}}}
	for _, u := range e.cfg.MetricsURLs {
		s.scrapers = append(s.scrapers, &scraper{url: u, client: s.http})
	}
	s.failed = make([]error, len(s.scrapers))
	return s
}

// close ends the kept connections.
func (s *sampler) close() { s.http.CloseIdleConnections() }

// take adds one sample; last says that none follows.
func (s *sampler) take(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	one := sample{procs: make([]*scrape, len(s.scrapers))}
	debugs := make([]*planeDebug, len(s.scrapers))
	withDebug := last || len(s.samples)%debugEvery == 0
	var wg sync.WaitGroup
	for i, sc := range s.scrapers {
		wg.Go(func() { // ends with its scrape, at the latest after sampleTimeout
			var err error
			if one.procs[i], err = sc.scrape(ctx); err != nil {
				s.failed[i] = err
			} else if withDebug && one.procs[i].role == roleFrontend {
				debugs[i] = sc.debug(ctx)
			}
		})
	}
	wg.Wait()
	one.self, one.selfOK = procstat.ReadCPU(procstat.Self)
	one.host, one.hostOK = procstat.ReadHostCPU()
	one.at = time.Now()
	s.samples = append(s.samples, one)
	for i, d := range debugs {
		if d != nil {
			s.debugs.add(one.procs[i].name, d)
		}
	}
}

// loop takes a sample each second, and one more when the first measured request starts, until ctx ends. A sample that
// was begun is finished: half a sample is none.
func (s *sampler) loop(ctx context.Context) {
	t := time.NewTicker(sampleInterval)
	defer t.Stop()
	first := s.e.plan.first
	for {
		select {
		case <-ctx.Done():
			return
		case <-first:
			first = nil
		case <-t.C:
		}
		s.take(context.WithoutCancel(ctx), false)
	}
}
