package report

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Phases of a run.
const (
	PhaseWarmup   = "warmup"
	PhaseMeasured = "measured"
)

// Ends of a request as the client saw it.
const (
	EndComplete = "complete"
	// a status of 400 or more, an error in the stream, or a finish reason that gives the answer up
	EndFailed    = "failed"
	EndConnect   = "connect"   // no connection
	EndTimeout   = "timeout"   // --request-timeout passed
	EndTruncated = "truncated" // the answer ended before its API says that it is complete
	EndProtocol  = "protocol"  // not HTTP, not an event stream, or not JSON
	EndCanceled  = "canceled"  // an interrupt ended the run
)

// Absent is the value of a time or count that was not measured; the field is then left out of the line.
const Absent = -1

// Row is one request: a line of requests.jsonl. Times are nanoseconds after the run's start; Absent when there is none.
type Row struct {
	ID       string
	Phase    string
	Intended int64 // when the request was to be sent
	Sent     int64 // first byte given to the kernel
	First    int64 // first chunk with non-empty content
	Last     int64 // last chunk with non-empty content
	End      int64 // the answer's last event, or the failure
	Status   int   // HTTP status, 0 when there was none
	// Ended is one of the Ends; ErrorType is the OpenAI error's type, or the end's name when there is none; empty when
	// complete.
	Ended        string
	ErrorType    string
	OutputTokens int // from usage; Absent when the server did not say
	Chunks       int // chunks with non-empty content
	FirstTokens  int // tokens in the first of them; 0 when nobody can know
	Wrong        int // wrong tokens; Absent when the response was not verified
	Worker       string
	Process      string
	Lane         string
	Retries      int // sent again by the client because a kept connection had been closed
}

// OK tells whether the request ended complete.
func (r *Row) OK() bool { return r.Ended == EndComplete }

// TTFT is the time to first token in nanoseconds, false without one.
func (r *Row) TTFT() (int64, bool) {
	return r.First - r.Sent, r.First >= 0 && r.Sent >= 0
}

// ITL is the mean inter-token latency in nanoseconds: the time after the first chunk, divided by the tokens that came
// in it. Where nobody knows how many tokens the first chunk had, it is taken to have had one. It is false when
// nothing came after the first chunk.
func (r *Row) ITL() (float64, bool) {
	after := r.OutputTokens - max(r.FirstTokens, 1)
	if r.First < 0 || r.Last < 0 || r.Chunks == 1 || after < 1 {
		return 0, false
	}
	return float64(r.Last-r.First) / float64(after), true
}

// AppendJSON appends the row's line, without the line end.
func (r *Row) AppendJSON(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, r.ID)
	b = append(b, `,"phase":`...)
	b = appendString(b, r.Phase)
	num := func(name string, v int64) {
		if v != Absent {
			b = append(b, ',', '"')
			b = append(b, name...)
			b = append(b, '"', ':')
			b = strconv.AppendInt(b, v, 10)
		}
	}
	str := func(name, v string) {
		if v != "" {
			b = append(b, ',', '"')
			b = append(b, name...)
			b = append(b, '"', ':')
			b = appendString(b, v)
		}
	}
	num("intended_ns", r.Intended)
	num("sent_ns", r.Sent)
	num("first_ns", r.First)
	num("last_ns", r.Last)
	num("end_ns", r.End)
	if r.Status != 0 {
		num("status", int64(r.Status))
	}
	str("end", r.Ended)
	str("error_type", r.ErrorType)
	num("output_tokens", int64(r.OutputTokens))
	num("chunks", int64(r.Chunks))
	if r.FirstTokens != 0 {
		num("first_tokens", int64(r.FirstTokens))
	}
	num("wrong", int64(r.Wrong))
	str("worker", r.Worker)
	str("process", r.Process)
	str("lane", r.Lane)
	num("retries", int64(r.Retries))
	return append(b, '}')
}

// appendString quotes s. What the server sent may be anything, so the rare cases go through encoding/json.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			q, err := json.Marshal(s)
			if err != nil { // a string always marshals
				return append(b, `""`...)
			}
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

type rowJSON struct {
	ID           string `json:"id"`
	Phase        string `json:"phase"`
	Intended     *int64 `json:"intended_ns"`
	Sent         *int64 `json:"sent_ns"`
	First        *int64 `json:"first_ns"`
	Last         *int64 `json:"last_ns"`
	End          *int64 `json:"end_ns"`
	Status       int    `json:"status"`
	Ended        string `json:"end"`
	ErrorType    string `json:"error_type"`
	OutputTokens *int   `json:"output_tokens"`
	Chunks       int    `json:"chunks"`
	FirstTokens  int    `json:"first_tokens"`
	Wrong        *int   `json:"wrong"`
	Worker       string `json:"worker"`
	Process      string `json:"process"`
	Lane         string `json:"lane"`
	Retries      int    `json:"retries"`
}

// ParseRow reads one line.
func ParseRow(line []byte) (Row, error) {
	var j rowJSON
	if err := json.Unmarshal(line, &j); err != nil {
		return Row{}, err
	}
	r := Row{
		ID: j.ID, Phase: j.Phase, Intended: orAbsent(j.Intended), Sent: orAbsent(j.Sent), First: orAbsent(j.First),
		Last: orAbsent(j.Last),
		End:  orAbsent(j.End), Status: j.Status, Ended: j.Ended, ErrorType: j.ErrorType,
		OutputTokens: orAbsent(j.OutputTokens),
		Chunks:       j.Chunks, FirstTokens: j.FirstTokens, Wrong: orAbsent(j.Wrong), Worker: j.Worker,
		Process: j.Process,
		Lane:    j.Lane, Retries: j.Retries,
	}
	return r, checkRow(&r)
}

// checkRow holds what every row has, and that no time or count is below zero: such a row would spoil the figures of all
// others.
func checkRow(r *Row) error {
	if r.Phase != PhaseWarmup && r.Phase != PhaseMeasured {
		return fmt.Errorf("phase is %q, expected %q or %q", r.Phase, PhaseWarmup, PhaseMeasured)
	}
	if r.Ended == "" {
		return fmt.Errorf("request %q has no end", r.ID)
	}
	if min(r.Intended, r.Sent, r.First, r.Last, r.End) < Absent || min(r.OutputTokens, r.Wrong) < Absent ||
		min(r.Chunks, r.FirstTokens, r.Retries, r.Status) < 0 {
		return fmt.Errorf("request %q has a time or a count below zero", r.ID)
	}
	return nil
}

func orAbsent[T int | int64](p *T) T {
	if p == nil {
		return Absent
	}
	return *p
}

// BadRow is a line of requests.jsonl that cannot be read. It is one bad row: the others stand.
type BadRow struct {
	Line int // from 1
	Err  error
}

func (e *BadRow) Error() string { return fmt.Sprintf("%s line %d: %v", RowsFile, e.Line, e.Err) }
func (e *BadRow) Unwrap() error { return e.Err }

// maxRowBytes bounds a line, so that a file that is no requests.jsonl ends the reading.
const maxRowBytes = 1 << 20
