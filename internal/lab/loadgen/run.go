package loadgen

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// setupTimeout bounds what is asked of the server before the load.
const setupTimeout = 10 * time.Second

// Run makes the load, writes the run directory and returns its report. When ctx ends early the report is made from what
// there is and marked partial; that is no error. An error means that there is no report.
func Run(ctx context.Context, cfg Config) (*report.Run, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	e, err := newEngine(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var dir *report.Dir
	if cfg.Dir != "" {
		if dir, err = report.Create(cfg.Dir); err != nil {
			return nil, err
		}
	}
	run, series, err := e.measure(ctx, dir)
	if dir == nil {
		return run, err
	}
	if err != nil {
		return nil, errors.Join(err, dir.Abandon())
	}
	if err := errors.Join(dir.Finish(run, series), writeGaps(cfg.Dir, merged(e.locals).rawGaps)); err != nil {
		return nil, err
	}
	return run, nil
}

// newEngine finds the server, connects to it once, and makes ready what all connections share.
func newEngine(ctx context.Context, cfg Config) (*engine, error) {
	t, err := newTarget(cfg.URL.Whole())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	addr, err := reach(ctx, t)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.URL.Whole())
	if err != nil {
		return nil, err
	}
	if cfg.Model == "" {
		if cfg.Model, err = firstModel(ctx, t, u.User, cfg.Header); err != nil {
			return nil, err
		}
	}
	if err := t.prepare(cfg, u.User); err != nil {
		return nil, err
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	return &engine{
		cfg: cfg, target: t, addr: addr, t0: time.Now(), prefix: "lg-" + hex.EncodeToString(id[:]) + "-",
		plan: newPlan(cfg),
		rows: make(chan ending, 1<<16), rampEnd: int64(cfg.Ramp), secrets: secretsOf(cfg.Header, u),
	}, nil
}

// reach connects to the server once, so that a run against nothing ends with one clear error, and to fix the address
// for the run.
func reach(ctx context.Context, t *target) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", t.addr())
	if err != nil {
		return "", fmt.Errorf("no connection to %s: is the server running there? %w", t.addr(), err)
	}
	addr := conn.RemoteAddr().String()
	return addr, conn.Close()
}

// firstModel asks the server for its models.
func firstModel(ctx context.Context, t *target, user *url.Userinfo, header []string) (string, error) {
	where := t.base.JoinPath("models")
	where.User = user
	hint := fmt.Errorf("name the model (--model)")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return "", err
	}
	for _, line := range header {
		name, value := cutHeader(line)
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("models of the server: %w: %w", redact.Error(err), hint)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %w", redact.Address(where.String()), resp.Status, hint)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&list); err != nil {
		return "", fmt.Errorf("%s: %w: %w", redact.Address(where.String()), err, hint)
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", fmt.Errorf("%s lists no model: wait until a worker is up, or %w", redact.Address(where.String()),
			hint)
	}
	return list.Data[0].ID, nil
}

// measure runs the load with everything that watches it.
func (e *engine) measure(ctx context.Context, dir *report.Dir) (*report.Run, []report.Second, error) {
	c, err := e.newClient()
	if err != nil {
		return nil, nil, err
	}
	for _, l := range e.locals {
		l.told = e.cfg.Late
	}
	col := newCollector(dir, e.cfg.Log)
	col.each = e.cfg.Each
	smp := newSampler(e)
	defer smp.close()
	smp.take(ctx, false)
	e.t0 = time.Now()

	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	var watchers, rows sync.WaitGroup
	rows.Go(func() { col.loop(e.rows) })    // ends when rows is closed
	watchers.Go(func() { smp.loop(watch) }) // ends with watch
	if e.cfg.Progress != nil {
		watchers.Go(func() { progress(watch, e, col) }) // ends with watch
	}
	stopPlan := context.AfterFunc(ctx, func() { e.plan.stop(e.now()) })
	watchers.Go(func() { // ends with watch
		select {
		case <-e.cfg.Stop:
			e.plan.stop(e.now())
		case <-watch.Done():
		}
	})
	err = c.run(ctx)
	stopPlan()
	stopWatch()
	watchers.Wait()
	close(e.rows)
	rows.Wait()
	if err != nil {
		return nil, nil, err
	}
	// The last readings are taken also when ctx has ended: they are what the partial report is made of.
	smp.take(context.WithoutCancel(ctx), true)
	return e.build(c, col, smp, ctx.Err() != nil)
}
