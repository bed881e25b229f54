package loadgen

import (
	"fmt"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// proofOfTransit checks that the counters of the arm's plane hold all tokens that the clients got, and every other
// plane's none. It returns why they do not, or "".
func proofOfTransit(plane string, p *report.Plane, tokens int64) string {
	if p == nil || p.PlaneRecords == nil {
		return "the frontend's laneway_plane_records_total could not be read at both ends of the run"
	}
	for name, n := range p.PlaneRecords {
		if name != plane && n != 0 {
			return fmt.Sprintf("%d records came over %s", n, name)
		}
	}
	if got := p.PlaneRecords[plane]; got < tokens {
		return fmt.Sprintf("%s counts %d records, the clients got %d tokens", plane, got, tokens)
	}
	if tokens == 0 {
		return "no token was received"
	}
	return ""
}

// tokensSeen adds up the tokens of all rows, also of failed ones as far as chunks tell.
func tokensSeen(rows []report.Row) int64 {
	total := int64(0)
	for i := range rows {
		r := &rows[i]
		if r.OutputTokens > 0 {
			total += int64(r.OutputTokens)
		} else {
			total += int64(r.Chunks)
		}
	}
	return total
}
