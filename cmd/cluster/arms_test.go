package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// TestReferenceArmsEndToEnd runs each reference arm as the planes are run: real processes, every token verified, and
// proof that the arm carried them all.
func TestReferenceArmsEndToEnd(t *testing.T) {
	dir := t.TempDir()
	arms := planeflags.ArmNames()
	code, stdout, stderr := runApp(small(dir, "--response-plane="+strings.Join(arms, ","))...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, stderr, stdout)
	}
	perWrite := map[string]float64{}
	for _, arm := range arms {
		at := filepath.Join(dir, arm+"-1")
		if err := report.CheckCluster(at); err != nil {
			t.Errorf("%s: %v", arm, err)
		}
		r, err := report.Read(at)
		if err != nil {
			t.Fatal(err)
		}
		if r.Raw.Requests != 64 || r.Raw.Errors != 0 || r.Raw.WrongTokens == nil || *r.Raw.WrongTokens != 0 ||
			r.Raw.Audited != 64 {
			t.Errorf("%s: %d requests, %d errors, %v wrong tokens, %d verified", arm, r.Raw.Requests, r.Raw.Errors,
				r.Raw.WrongTokens, r.Raw.Audited)
		}
		for plane, n := range r.Plane.PlaneRecords {
			if plane == arm && n < 64*16 || plane != arm && n != 0 {
				t.Errorf("%s: records by plane are %v", arm, r.Plane.PlaneRecords)
			}
		}
		if r.Plane.StreamsEnded["complete"] < 64 || len(r.Plane.Lanes) != 2 {
			t.Errorf("%s: ends %v, lanes %v", arm, r.Plane.StreamsEnded, r.Plane.Lanes)
		}
		perWrite[arm] = *r.Plane.RecordsPerWrite
	}
	if perWrite["record-quic"] > 1 {
		t.Errorf("record-quic writes %v records at once", perWrite["record-quic"])
	}
	if perWrite["mux-tcp"] <= 1 || perWrite["interval-quic"] <= 1 {
		t.Errorf("records per write %v: the batching arms do not batch", perWrite)
	}
}
