package frontend

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/outpath"
)

// asSinks has the scripted responses of existing tests be SinkStreams.
var asSinks bool

// asPasses has them be PassStreams.
var asPasses bool

// sinkPlay is a play that keeps SinkStream's contract as the plane does. What plays it is its lane's reader: a
// goroutine of its own, or a test that calls deliver.
type sinkPlay struct {
	*play
	reader sync.WaitGroup

	mu     sync.Mutex
	ready  [][]byte
	end    error
	sink   func([][]byte, error) bool
	pulled bool
	told   bool
	took   bool // NextBatch has given records
	inSink bool
	change chan struct{} // capacity 1: a NextBatch that waits must look again
}

// newSinkPlay plays p's steps until the stream is closed. The first is there when it returns.
func newSinkPlay(p *play) *sinkPlay {
	s := byHand(p)
	select {
	case first := <-p.steps:
		s.deliver(first)
	case <-p.killed:
	}
	s.reader.Go(func() {
		for {
			select {
			case next := <-p.steps:
				s.deliver(next)
			case <-p.shut:
				return
			}
		}
	})
	return s
}

// byHand is a stream that gets what a test delivers.
func byHand(p *play) *sinkPlay { return &sinkPlay{play: p, change: make(chan struct{}, 1)} }

// deliver is a read of the lane: it returns when the sink has.
func (s *sinkPlay) deliver(read step) {
	recs, err := s.give(read)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.ready, s.end = append(s.ready, recs...), err
		s.changed()
	}
	if s.sink == nil || s.pulled || s.told {
		return
	}
	s.told = s.end != nil
	sink, views, end := s.sink, s.ready, s.end
	s.inSink = true
	s.mu.Unlock()
	took := sink(views, end)
	for _, v := range views { // they were valid during the call
		if took {
			copy(v, bytes.Repeat([]byte{'!'}, len(v)))
		}
	}
	s.mu.Lock()
	s.inSink = false
	if took {
		s.ready = nil
	} else {
		s.pulled = true
	}
	s.changed()
}

// window waits, as the worker does, while much has not been taken.
func (s *sinkPlay) window() {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		s.mu.Lock()
		full := len(s.ready) > 400
		s.mu.Unlock()
		if !full {
			return
		}
	}
}

func (s *sinkPlay) changed() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

func (s *sinkPlay) OnRecords(sink func([][]byte, error) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sink, s.pulled = sink, len(s.ready) > 0 || s.end != nil
}

func (s *sinkPlay) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		s.mu.Lock()
		if !s.inSink {
			if len(s.ready) > 0 || s.end != nil {
				recs, end := s.ready, s.end
				s.ready = nil
				// the first go alone, as with the plane; of the others and the end, both must do
				if len(recs) > 0 && !s.took {
					end, s.took = nil, true
				}
				s.mu.Unlock()
				return recs, end
			}
			if s.sink != nil {
				s.pulled = false
				s.mu.Unlock()
				return nil, nil
			}
		}
		s.mu.Unlock()
		select {
		case <-s.change:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Kill drops what waits and ends the stream; its sink is told by the next read.
func (s *sinkPlay) Kill() {
	s.play.Kill()
	s.finish()
}

func (s *sinkPlay) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		if !s.inSink {
			s.ready = nil
		}
		s.end = &EndError{End: EndKilled}
		s.changed()
	}
}

func (s *sinkPlay) Close() error {
	s.finish()
	err := s.play.Close()
	s.reader.Wait()
	return err
}

// passPlay is a sinkPlay that is a PassStream.
type passPlay struct {
	*sinkPlay
	pass *readPass // the one that a test has sinks called in; nil = one for each call
}

// readPass is a lane's.
type readPass struct {
	value any
	after func()
}

func (p *readPass) Value() any                    { return p.value }
func (p *readPass) Defer(value any, after func()) { p.value, p.after = value, after }

// end is the end of a read.
func (p *readPass) end() {
	if p.after != nil {
		p.after()
	}
	*p = readPass{}
}

func (s *passPlay) OnPass(sink func(Pass, [][]byte, error) bool) {
	s.OnRecords(func(recs [][]byte, err error) bool {
		if s.pass != nil {
			return sink(s.pass, recs, err)
		}
		p := new(readPass)
		defer p.end()
		return sink(p, recs, err)
	})
}

// TestSinksBehaveAlike runs tests of pulled streams with streams that have a sink.
func TestSinksBehaveAlike(t *testing.T) { behaveAlike(t) }

// TestPassesBehaveAlike is the same for streams whose sinks are called in passes.
func TestPassesBehaveAlike(t *testing.T) {
	needRing(t)
	asPasses = true
	defer func() { asPasses = false }()
	behaveAlike(t)
}

func needRing(t testing.TB) {
	t.Helper()
	var pool outpath.Batches
	defer pool.Close()
	b, err := pool.Get()
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("%v: CI has to run it", err)
	case err != nil:
		t.Skip(err)
	}
	b.Finish()
}

func behaveAlike(t *testing.T) {
	asSinks = true
	defer func() { asSinks = false }()
	for name, test := range map[string]func(*testing.T){
		"byte exact":             TestStreamsAreByteExact,
		"replies":                TestRepliesAreByteExact,
		"ready records":          TestReadyRecordsGoOutInOneWrite,
		"huge batch":             TestHugeBatch,
		"keep-alive":             TestKeepAliveComments,
		"used again":             TestConnectionIsUsedAgain,
		"leaves in mid-stream":   TestClientThatLeavesInMidStreamKills,
		"leaves during a reply":  TestClientThatLeavesWhileAReplyIsCollectedKills,
		"stop":                   TestStopOnDisconnect,
		"stop that is not heard": TestStopThatIsNotHeardIsBounded,
		"stalled":                TestStalledClient,
		"slow":                   TestSlowClientIsNotCut,
		"drain":                  TestDrain,
		"drain cuts":             TestDrainTimeoutCutsWithAnError,
		"end in mid-stream":      TestEndInMidStream,
		"unreadable trailer":     TestUnreadableTrailer,
		"reply too large":        TestReplyTooLarge,
		"what the worker gets":   TestWhatTheWorkerGets,
		"cancel storm":           TestCancelStorm,
	} {
		t.Run(name, test)
	}
}
