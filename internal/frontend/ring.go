package frontend

import (
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/internal/frontend/outpath"
)

// ErrNoRing is why OutRing cannot be had: the kernel has no io_uring that does what is needed, or does not let it be
// used.
var ErrNoRing = errors.New("frontend: io_uring cannot be used here")

// chooseOutPath settles what OutAuto is here.
func (s *Server) chooseOutPath() error {
	if s.cfg.OutPath != OutAuto && s.cfg.OutPath != OutRing {
		return nil
	}
	err := s.batches.Probe()
	switch {
	case err == nil:
		s.cfg.OutPath = OutRing
	case s.cfg.OutPath == OutRing:
		return fmt.Errorf("%w: %w", ErrNoRing, err)
	default:
		s.cfg.OutPath = OutInline
		s.noRing.Store(&err)
	}
	return nil
}

// OutPath is the path in force: never OutAuto. why says what is against io_uring where it was wanted.
func (s *Server) OutPath() (path OutPath, why error) {
	if err := s.noRing.Load(); err != nil {
		return OutInline, *err
	}
	return s.cfg.OutPath, nil
}

// batch is the pass's batch, nil when there are none.
func (s *Server) batch(pass Pass) *outpath.Batch {
	if b, ok := pass.Value().(*outpath.Batch); ok {
		return b
	}
	b, err := s.batches.Get()
	if err != nil {
		s.ringBroke(err)
		return nil
	}
	pass.Defer(b, b.Done())
	return b
}

// ringBroke notes, once, that there are no batches any more.
func (s *Server) ringBroke(err error) {
	if !errors.Is(err, outpath.ErrBatchesClosed) && s.noRing.CompareAndSwap(nil, &err) {
		s.log.Warn("io_uring cannot be used any more: events are written one by one", "error", err)
	}
}
