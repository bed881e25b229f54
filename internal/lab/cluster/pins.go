package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Values of Config.Pin beside an explicit list.
const (
	PinAuto = "auto"
	PinOff  = "off" // as "" is
)

// Roles that an explicit list names. etcd and NATS (servers) go with the workers when they have no cores of their own.
const (
	pinFrontend = "frontend"
	pinWorkers  = "workers"
	pinLoadgen  = "loadgen"
	pinServers  = "servers"
)

// minPinned is how many cores auto wants before it pins: with fewer, a part that waits for one core while another idles
// costs more than sharing does.
const minPinned = 6

// pins are the cores of each role; a role that is not there is not pinned. The zero value pins nothing.
type pins map[string]coreSet

// coreSet is a set of cores, ascending.
type coreSet []int

// String writes the set as the kernel does: "0-3,8".
func (c coreSet) String() string {
	var parts []string
	for i := 0; i < len(c); {
		k := i
		for k+1 < len(c) && c[k+1] == c[k]+1 {
			k++
		}
		if k == i {
			parts = append(parts, strconv.Itoa(c[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", c[i], c[k]))
		}
		i = k + 1
	}
	return strings.Join(parts, ",")
}

// maxCore bounds what a list may name; the kernel's set has no more.
const maxCore = 1023

// parseCores reads "0-3,8".
func parseCores(s string) (coreSet, error) {
	var out coreSet
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > maxCore {
			return nil, fmt.Errorf("%q is no list of cores: write it like 0-3,8, with numbers up to %d", s, maxCore)
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// parsePin reads an explicit list, "frontend:0-1 workers:2-5 loadgen:6-7". auto and off give nil.
func parsePin(s string) (pins, error) {
	if s == PinAuto || s == PinOff || s == "" {
		return nil, nil
	}
	roles := []string{pinFrontend, pinWorkers, pinLoadgen, pinServers}
	out := pins{}
	for _, word := range strings.Fields(s) {
		role, list, ok := strings.Cut(word, ":")
		if !ok || !slices.Contains(roles, role) {
			return nil,
				fmt.Errorf("--pin %q: %q names no part: use %s, %s, or a list of ROLE:CORES like \"frontend:0-1 "+
					"workers:2-5 loadgen:6-7\" with the roles %s",
					s, word, PinAuto, PinOff, strings.Join(roles, ", "))
		}
		if out[role] != nil {
			return nil, fmt.Errorf("--pin %q: %s stands there twice: join its cores with commas, like %s:0,2", s, role,
				role)
		}
		cores, err := parseCores(list)
		if err != nil {
			return nil, fmt.Errorf("--pin %q: %s: %w", s, role, err)
		}
		out[role] = cores
	}
	if len(out) == 0 {
		return nil,
			fmt.Errorf("--pin %q names nothing: use %s, %s, or a list like \"frontend:0-1 workers:2-5 loadgen:6-7\"", s,
				PinAuto, PinOff)
	}
	return out, nil
}

// planPins divides a machine of so many physical cores, each a set of hardware threads, between frontend, workers and
// load generator: no two of them share a core. The load generator gets a quarter and the frontend a third, both at
// least one, the workers what is left. It says why when there are too few.
func planPins(machine []coreSet) (pins, string) {
	threads := 0
	for _, c := range machine {
		threads += len(c)
	}
	if threads < minPinned || len(machine) < 3 {
		return nil, fmt.Sprintf("%d cores are too few, %d are needed", threads, minPinned)
	}
	n := len(machine)
	front, load := max(1, n/3), max(1, n/4)
	take := func(cores []coreSet) (out coreSet) {
		for _, c := range cores {
			out = append(out, c...)
		}
		slices.Sort(out)
		return out
	}
	return pins{pinFrontend: take(machine[:front]), pinWorkers: take(machine[front : n-load]),
		pinLoadgen: take(machine[n-load:])}, ""
}

// resolvePins decides which cores each part gets. why says why auto pins nothing, "" when it pins or was not asked.
func (c Config) resolvePins() (p pins, why string, err error) {
	if p, err = parsePin(c.Pin); err != nil || c.Pin == PinOff || c.Pin == "" {
		return nil, "", err
	}
	allowed, err := allowedCores()
	if p == nil { // auto
		if err != nil {
			return nil, err.Error(), nil
		}
		p, why = planPins(physicalCores(cpuRoot, allowed))
		return p, why, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("--pin %q: %w", c.Pin, err)
	}
	var errs []error
	for _, role := range slices.Sorted(maps.Keys(p)) {
		for _, core := range p[role] {
			if !slices.Contains(allowed, core) {
				errs = append(errs, fmt.Errorf("--pin %q: %s may not use core %d: this process has %s", c.Pin, role,
					core, allowed))
				break
			}
		}
	}
	if len(errs) > 0 {
		return nil, "", errors.Join(errs...)
	}
	return p, "", nil
}

// servers are the cores of etcd and NATS.
func (p pins) servers() coreSet {
	if own, ok := p[pinServers]; ok {
		return own
	}
	return p[pinWorkers]
}

// text says it to the user.
func (p pins) text() string {
	var parts []string
	for _, role := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, fmt.Sprintf("%s to %s", role, p[role]))
	}
	return strings.Join(parts, ", ")
}

// recordPins is environment.pins of run.json: cores by process name.
func (s *session) recordPins() map[string]string {
	out := map[string]string{}
	put := func(name string, c coreSet) {
		if len(c) > 0 {
			out[name] = c.String()
		}
	}
	p := s.cfg.pins
	put(nodeFrontend, p[pinFrontend])
	put(nodeLoadgen, p[pinLoadgen])
	for i := range s.cfg.Processes {
		put(workerName(i), p[pinWorkers])
	}
	for _, v := range s.servers {
		put(v.role, p.servers())
	}
	return out
}
