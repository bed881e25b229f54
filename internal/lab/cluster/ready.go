package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pollEvery is how often a state is looked at that nobody announces.
const pollEvery = 50 * time.Millisecond

// httpTimeout bounds one request to a process of the run.
const httpTimeout = 5 * time.Second

// NotReadyError says which part of the cluster did not come up.
type NotReadyError struct {
	What string // "worker-3 did not come up within 90s"
	Why  string // what is known about it
	Last []string
	Log  string
}

func (e *NotReadyError) Error() string {
	s := e.What
	if e.Why != "" {
		s += " (" + e.Why + ")"
	}
	if len(e.Last) > 0 {
		s += ", its last log lines: " + strings.Join(e.Last, " | ")
	}
	if e.Log != "" {
		s += " (all of them: " + e.Log + ")"
	}
	return s
}

// errNotYet says that a condition does not hold so far.
var errNotYet = errors.New("not yet")

// poll calls f until it returns something else than errNotYet, the session fails or the deadline passes; then it
// returns errNotYet.
func (s *session) poll(deadline time.Time, every time.Duration, f func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err := f(); !errors.Is(err, errNotYet) {
			return err
		}
		if time.Now().After(deadline) {
			return errNotYet
		}
		select {
		case <-s.ctx.Done():
		case <-tick.C:
		}
	}
}

// addresses waits until the child's log says where it listens: attributes keys of one line.
func (s *session) addresses(c *child, deadline time.Time, keys ...string) ([]string, error) {
	var found []string
	err := s.poll(deadline, pollEvery, func() error {
		b, err := os.ReadFile(c.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			found = found[:0]
			for _, k := range keys {
				if v, ok := attribute(line, k); ok {
					found = append(found, v)
				}
			}
			if len(found) == len(keys) && strings.HasSuffix(line, "\n") {
				return nil
			}
		}
		return errNotYet
	})
	if errors.Is(err, errNotYet) {
		return nil, s.notReady(c, "it does not say where it listens")
	}
	return found, err
}

func (s *session) notReady(c *child, why string) error {
	return &NotReadyError{What: fmt.Sprintf("%s did not come up within %s", c.name, s.cfg.times.start), Why: why,
		Last: tail(c.log, tailLines), Log: c.log}
}

// attribute finds key=value in a line of slog's text handler.
func attribute(line, key string) (string, bool) {
	_, rest, ok := strings.Cut(line, " "+key+"=")
	if !ok {
		return "", false
	}
	if q, err := strconv.QuotedPrefix(rest); err == nil {
		v, err := strconv.Unquote(q)
		return v, err == nil
	}
	if i := strings.IndexAny(rest, " \r\n"); i >= 0 {
		rest = rest[:i]
	}
	return rest, rest != ""
}

// planeView is what of the frontend's /debug/plane matters here.
type planeView struct {
	Workers struct {
		Known     int `json:"known"`
		Reachable int `json:"reachable"`
	} `json:"workers"`
	List []struct {
		ID        string `json:"id"`
		Name      string `json:"name"` // of its process
		Reachable bool   `json:"reachable"`
		Err       string `json:"error"`
	} `json:"worker_list"`
}

// maxView bounds the answer that is read.
const maxView = 64 << 20

// ready waits until the frontend can reach every worker.
func (s *session) ready(deadline time.Time) error {
	client := s.httpClient()
	defer client.CloseIdleConnections()
	var last planeView
	var lastErr error
	err := s.poll(deadline, 4*pollEvery, func() error {
		var v planeView
		if lastErr = s.view(client, s.frontendAdmin, &v); lastErr != nil {
			return errNotYet // busy, or not up; a dead one is noticed by its end
		}
		last = v
		if v.Workers.Reachable < s.cfg.Workers {
			return errNotYet
		}
		return nil
	})
	if !errors.Is(err, errNotYet) {
		return err
	}
	if lastErr != nil {
		return s.notReady(s.frontend, lastErr.Error())
	}
	return s.unreachable(&last)
}

// view reads /debug/plane of a process.
func (s *session) view(client *http.Client, admin string, v any) error {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+admin+"/debug/plane", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxView)).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", req.URL, err)
	}
	return nil
}

// unreachable names the first worker process of which a worker is missing.
func (s *session) unreachable(v *planeView) error {
	reached := map[string]int{}
	why := map[string]string{}
	for _, w := range v.List {
		if w.Reachable {
			reached[w.Name]++
		} else if w.Err != "" {
			why[w.Name] = "the frontend cannot reach it: " + w.Err
		}
	}
	i := slices.IndexFunc(s.workers,
		func(c *child) bool { return reached[c.name] < s.cfg.engines(slices.Index(s.workers, c)) })
	if i < 0 {
		return s.notReady(s.frontend, fmt.Sprintf("it reaches %d of %d workers", v.Workers.Reachable, s.cfg.Workers))
	}
	c := s.workers[i]
	text := fmt.Sprintf("the frontend reaches %d of its %d workers, %d of %d in all", reached[c.name], s.cfg.engines(i),
		v.Workers.Reachable, s.cfg.Workers)
	if why[c.name] != "" {
		text += "; " + why[c.name]
	}
	return s.notReady(c, text)
}
