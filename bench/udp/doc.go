// Package udp measures how fast, and for how much CPU, one socket sends datagrams to another over loopback, by the
// system call that takes them: sendmsg and sendmmsg, each with and without segmentation offload (UDP_SEGMENT, by socket
// option or with each message), and received with and without UDP_GRO.
//
// Sender and receiver are a locked OS thread each, so that their CPU is told apart (CLOCK_THREAD_CPUTIME_ID); on
// loopback the kernel does the work of receiving up to the socket in the sender's name. There is no flow control: what
// the receiver's buffer does not hold is dropped, and counted. Each datagram carries its number; length and order are
// checked.
package udp

import (
	"errors"
	"fmt"
	"slices"
)

// MaxMessage is the most that one message may hold, all its segments together.
const MaxMessage = 65507

// MinDatagram is the shortest datagram: its number.
const MinDatagram = 8

// Ways to hand GSO its segment size.
const (
	ByOption  = "option"  // UDP_SEGMENT of the socket
	ByMessage = "message" // a control message with each message
)

// Way is one way to send.
type Way struct {
	Messages int    `json:"messages"` // in a call: 1 = sendmsg, more = sendmmsg
	Segments int    `json:"segments"` // in a message; 0 = without GSO
	By       string `json:"by,omitempty"`
}

// Plain is the way that others are compared with: a datagram a call.
var Plain = Way{Messages: 1}

func (w Way) String() string {
	s := "sendmsg"
	if w.Messages > 1 {
		s = fmt.Sprintf("sendmmsg x%d", w.Messages)
	}
	if w.Segments > 0 {
		s += fmt.Sprintf(" + GSO x%d by %s", w.Segments, w.By)
	}
	return s
}

// Ways are all that are measured: calls of 1, 8, 16 and 64 messages without GSO, and calls of 1 and 8 messages of 1, 8,
// 16 and 64 segments.
func Ways() (ways []Way) {
	for _, n := range []int{1, 8, 16, 64} {
		ways = append(ways, Way{Messages: n})
	}
	for _, messages := range []int{1, 8} {
		for _, segments := range []int{1, 8, 16, 64} {
			for _, by := range []string{ByOption, ByMessage} {
				ways = append(ways, Way{messages, segments, by})
			}
		}
	}
	return ways
}

// Config of a measurement.
type Config struct {
	Datagram int   // bytes of a datagram, MinDatagram to 1,472
	Bytes    int64 // of each run
	Runs     int   // of each way, interleaved
	Buffer   int   // SO_RCVBUF and SO_SNDBUF asked for
	Progress func(string)
}

// Validate joins everything that cannot be.
func (c Config) Validate() error {
	var errs []error
	if c.Datagram < MinDatagram || c.Datagram > 1472 {
		errs = append(errs, fmt.Errorf("--datagram-size %d: use %d to 1472", c.Datagram, MinDatagram))
	}
	if c.Bytes < int64(c.Datagram) || c.Runs < 1 || c.Buffer < 1 {
		errs = append(errs, fmt.Errorf("%d runs of %d bytes with a buffer of %d cannot be", c.Runs, c.Bytes, c.Buffer))
	}
	return errors.Join(errs...)
}

// Fits says whether the segments of one message fit it.
func (c Config) Fits(w Way) bool { return max(w.Segments, 1)*c.Datagram <= MaxMessage }

// Run is one run.
type Run struct {
	Way      Way     `json:"way"`
	GRO      bool    `json:"gro"`
	Run      int     `json:"run"`
	Sent     int64   `json:"sent_datagrams"`
	Received int64   `json:"received_datagrams"`
	Wrong    int64   `json:"wrong_datagrams"` // of another length, or out of order
	SentMBS  float64 `json:"sent_mb_per_s"`
	RecvMBS  float64 `json:"received_mb_per_s"`
	// CPU of the two threads in ms, and system calls, for each MB that was sent and received.
	SendCPU   float64 `json:"send_cpu_ms_per_mb"`
	RecvCPU   float64 `json:"receive_cpu_ms_per_mb"`
	SendCalls float64 `json:"send_calls_per_mb"`
	RecvCalls float64 `json:"receive_calls_per_mb"`
}

// Lost is the share that the receiver's socket dropped.
func (r Run) Lost() float64 { return 1 - float64(r.Received)/float64(r.Sent) }

// Group is the runs of one way.
type Group struct {
	Way  Way
	GRO  bool
	Runs []Run
}

// Groups puts the runs of each way together, in the order of their first ones.
func Groups(runs []Run) (out []*Group) {
	for _, r := range runs {
		i := slices.IndexFunc(out, func(g *Group) bool { return g.Way == r.Way && g.GRO == r.GRO })
		if i < 0 {
			i = len(out)
			out = append(out, &Group{Way: r.Way, GRO: r.GRO})
		}
		out[i].Runs = append(out[i].Runs, r)
	}
	return out
}

// Values are those of a figure, in the order of the runs.
func (g *Group) Values(f func(Run) float64) (out []float64) {
	for _, r := range g.Runs {
		out = append(out, f(r))
	}
	return out
}
