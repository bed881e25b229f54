package mock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// FailureType is one way in which an injected failure shows.
type FailureType string

const (
	// FailRefuse: the request is refused as busy, though there is a place.
	FailRefuse FailureType = "refuse"
	// FailFail: the response ends as failed after some of its tokens.
	FailFail FailureType = "fail"
	// FailStall: after some tokens nothing comes any more; the request keeps its place until it is cancelled.
	FailStall FailureType = "stall"
	// FailTruncate: the response ends as complete after some of its tokens, and its trailer claims all of them. An
	// audit must find it.
	FailTruncate FailureType = "truncate"
	// FailLane: after some tokens a lane of the process is closed (Config.CloseLane). The request goes on: its response
	// must survive that.
	FailLane FailureType = "lane"
	// FailKill: after some tokens the process is killed (Config.Kill), and everything in it.
	FailKill FailureType = "kill"
)

// requestFailures hit one request; the others hit whatever shares its lane or its process.
var (
	requestFailures = []FailureType{FailRefuse, FailFail, FailStall, FailTruncate}
	failureTypes    = append(slices.Clone(requestFailures), FailLane, FailKill)
)

// FailureTypeNames are the names of all failure types.
func FailureTypeNames() []string { return names(failureTypes) }

// RequestFailureNames are the names of those failure types that hit no other request.
func RequestFailureNames() []string { return names(requestFailures) }

func names(types []FailureType) []string {
	out := make([]string, len(types))
	for i, f := range types {
		out[i] = string(f)
	}
	return out
}

// ParseFailureTypes reads a comma-separated list of failure types. An empty list is none.
func ParseFailureTypes(s string) ([]FailureType, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var out []FailureType
	for name := range strings.SplitSeq(s, ",") {
		f := FailureType(strings.TrimSpace(name))
		if !slices.Contains(failureTypes, f) {
			return nil, fmt.Errorf("failure type %q is not one of %s", f, strings.Join(FailureTypeNames(), ", "))
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out, nil
}

// drawFailure decides over one request of n records: how it fails ("" for not at all) and after how many records. It
// draws the same number of random values each time, so that one request's fate does not move the next one's.
func drawFailure(r *rand.Rand, rate float64, types []FailureType, n int) (kind FailureType, after int) {
	p, k, a := r.Float64(), r.Float64(), r.Float64()
	if p >= rate || len(types) == 0 || n == 0 {
		return "", -1
	}
	return types[min(int(k*float64(len(types))), len(types)-1)], min(int(a*float64(n)), n-1) // never after all of them
}
