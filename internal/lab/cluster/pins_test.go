package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// machineOf is a machine of so many physical cores; the second thread of core i, if any, is i + cores.
func machineOf(cores, threads int) (out []coreSet) {
	for i := range cores {
		var c coreSet
		for k := range threads {
			c = append(c, i+k*cores)
		}
		out = append(out, c)
	}
	return out
}

func TestPlanPins(t *testing.T) {
	for _, c := range []struct {
		cores, threads int
		want           string // "" = too few
	}{
		{1, 1, ""}, {2, 1, ""}, {5, 1, ""}, {2, 2, ""}, {2, 4, ""},
		{6, 1, "frontend to 0-1, loadgen to 5, workers to 2-4"},
		{3, 2, "frontend to 0,3, loadgen to 2,5, workers to 1,4"},
		{8, 1, "frontend to 0-1, loadgen to 6-7, workers to 2-5"},
		{4, 2, "frontend to 0,4, loadgen to 3,7, workers to 1-2,5-6"},
		{64, 2, "frontend to 0-20,64-84, loadgen to 48-63,112-127, workers to 21-47,85-111"},
	} {
		p, why := planPins(machineOf(c.cores, c.threads))
		if got := p.text(); got != c.want || (why == "") != (c.want != "") {
			t.Errorf("%d cores of %d threads: %q, want %q (%s)", c.cores, c.threads, got, c.want, why)
		}
		owner := map[int]string{}
		for role, set := range p {
			for _, n := range set {
				if owner[n%c.cores] != "" && owner[n%c.cores] != role {
					t.Errorf("%d cores of %d threads: core %d is %s's and %s's", c.cores, c.threads, n%c.cores,
						owner[n%c.cores], role)
				}
				owner[n%c.cores] = role
			}
		}
		if c.want != "" && len(owner) != c.cores {
			t.Errorf("%d cores of %d threads: %d are given away", c.cores, c.threads, len(owner))
		}
	}
	if _, why := planPins(machineOf(2, 1)); !strings.Contains(why, "2 cores are too few, 6 are needed") {
		t.Error(why)
	}
}

func TestParsePin(t *testing.T) {
	p, err := parsePin("frontend:0-1,5 workers:2 loadgen:3,3")
	if err != nil || p.text() != "frontend to 0-1,5, loadgen to 3, workers to 2" || p.servers().String() != "2" {
		t.Errorf("%q %v, servers %q", p.text(), err, p.servers())
	}
	if p, err = parsePin("servers:7 workers:2"); err != nil || p.servers().String() != "7" || len(p[pinFrontend]) != 0 {
		t.Errorf("%q %v", p.text(), err)
	}
	for s, want := range map[string]string{
		" ": "names nothing", "on": `"on" names no part`, "worker:1": `"worker:1" names no part`,
		"workers:": "is no list of cores", "workers:3-1": "is no list of cores",
		"workers:-1": "is no list of cores", "workers:0-4000": "up to 1023",
		"workers:0 workers:1": "workers stands there twice: join",
	} {
		if _, err := parsePin(s); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(),
			"--pin") {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
}

func TestHoldersOnPurpose(t *testing.T) {
	c := Config{Processes: 8, TTFT: 20 * time.Millisecond, ITL: 200 * time.Millisecond}
	for _, one := range []struct {
		ttft, itl, want time.Duration
	}{
		{20 * time.Millisecond, 200 * time.Millisecond, 2400 * time.Millisecond},
		{20 * time.Millisecond, 20 * time.Millisecond, time.Second},
		{time.Second, 200 * time.Millisecond, 9600 * time.Millisecond},
	} {
		c.TTFT, c.ITL = one.ttft, one.itl
		if got := c.holdDelay(); got != one.want {
			t.Errorf("%v and %v give a delay of %v, want %v", one.ttft, one.itl, got, one.want)
		}
		// What the delay must do, by the definition of a holder.
		usual := one.ttft + one.itl
		if mean := usual + c.holdDelay()/2; mean <= 3*usual || mean <= usual+3*one.itl {
			t.Errorf("%v and %v: a mean of %v beside %v makes no holder", one.ttft, one.itl, mean, usual)
		}
	}
	c.ITL, c.TTFT = 200*time.Millisecond, 20*time.Millisecond
	c.Holders = 2
	if got := [][]string{c.holdArgs(0), c.holdArgs(1),
		c.holdArgs(2)}; fmt.Sprint(got) != "[[--hold-share=0.5 --hold-delay=2.4s] [--hold-share=0.5 "+
		"--hold-delay=2.4s] []]" {
		t.Error(got)
	}
	for _, bad := range []struct {
		holders int
		delay   time.Duration
		itl     time.Duration
		want    string
	}{
		{5, 0, 0, "--holders 5 of --processes 8: use 0 to 4"}, {-1, 0, 0, "--holders -1"},
		{1, 1200 * time.Millisecond, 0,
			"--hold-delay 1.2s makes no holder: with half of the requests held it must exceed"},
		{1, 0, time.Hour, "would hold requests back for 12h0m0s"}, {0, time.Millisecond, 0, ""},
		{4, 1201 * time.Millisecond, 0, ""},
	} {
		c := c
		c.Holders, c.HoldDelay = bad.holders, bad.delay
		if bad.itl > 0 {
			c.ITL = bad.itl
		}
		if err := c.checkHolders(); (err == nil) != (bad.want == "") || err != nil && !strings.Contains(err.Error(),
			bad.want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestCoreSets(t *testing.T) {
	for _, s := range []string{"0", "0-3", "0-1,3,5-7", "2,4,6"} {
		if c, err := parseCores(s); err != nil || c.String() != s {
			t.Errorf("%q is read as %q, %v", s, c, err)
		}
	}
	if c, err := parseCores("3,0-1,1"); err != nil || !slices.Equal(c, coreSet{0, 1, 3}) {
		t.Errorf("%v %v", c, err)
	}
}
