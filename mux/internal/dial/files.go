package dial

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// FileLimitError says that a lane is not dialled, or could not be, because of the process's limit of open files.
type FileLimitError struct {
	Limit uint64 // RLIMIT_NOFILE, 0 = not known
	Share int64  // how many of them the lanes may take
	Lanes int    // that all known nodes need
	Nodes int
	Need  uint64 // the limit with which all of them fit
	Err   error  // what the system said; nil: the lanes have taken their share and it was not asked
}

func (e *FileLimitError) Error() string {
	s := fmt.Sprintf("mux: no file descriptor for a lane: this process may open %d files (RLIMIT_NOFILE), of which "+
		"lanes take at most %d so that requests still come in; %d lanes to %d nodes need a limit of at least %d: "+
		"raise it "+
		"(ulimit -n, LimitNOFILE), or set fewer Lanes", e.Limit, e.Share, e.Lanes, e.Nodes, e.Need)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *FileLimitError) Unwrap() error { return e.Err }

// shortEvery is the least time between two lines of the log about the limit: it concerns every node at once.
const shortEvery = 10 * time.Second

// files counts the descriptors of the lanes. Lanes take three quarters of what the process may open at most, and
// further lanes of a node only half, so that every node has one first and the process can go on serving.
type files struct {
	taken  atomic.Int64
	warned atomic.Int64 // node time of the last line of the log, 0 = none
}

// share is how many descriptors lanes may take. Whole quarters, at least one.
func share(limit uint64, index int) int64 {
	quarters := uint64(3)
	if index > 0 {
		quarters = 2
	}
	return int64(max(limit/4*quarters, 1))
}

// take takes one descriptor for a connection of lane index of a node.
func (f *files) take(r *Peers, plane string, index int) error {
	if plane == transport.PlaneMemory {
		return nil
	}
	n := f.taken.Add(1)
	limit, ok := transport.FileLimit()
	if !ok || n <= share(limit, index) {
		return nil
	}
	f.taken.Add(-1)
	return r.fileLimit(nil)
}

// give returns it.
func (f *files) give(plane string) {
	if plane != transport.PlaneMemory {
		f.taken.Add(-1)
	}
}

// explain says what to do about a system's refusal to open another file.
func (f *files) explain(r *Peers, err error) error {
	if !errors.Is(err, syscall.EMFILE) {
		return err
	}
	return r.fileLimit(err)
}

// short says whether an error is about the limit, and logs that seldom.
func (f *files) short(r *Peers, err error) bool {
	if _, ok := errors.AsType[*FileLimitError](err); !ok {
		return false
	}
	now, last := r.cfg.Now(), f.warned.Load()
	if (last == 0 || now-last >= int64(shortEvery)) && f.warned.CompareAndSwap(last, now) {
		r.log.Error("not every worker can be reached", "error", oneLine(err))
	}
	return true
}

// fileLimit describes the shortage.
func (r *Peers) fileLimit(cause error) error {
	limit, _ := transport.FileLimit()
	e := &FileLimitError{Limit: limit, Share: share(limit, 0), Err: cause}
	for _, p := range r.snapshot() {
		if routes := p.routes(); len(routes) > 0 {
			e.Nodes++
			e.Lanes += r.cfg.lanesFor(routes[0].plane())
		}
	}
	e.Need = uint64(e.Lanes+2)/3*4 + 4
	if e.Lanes > e.Nodes { // further lanes may take half only
		e.Need = max(e.Need, uint64(e.Lanes)*2+4)
	}
	return e
}
