package childproc

import (
	"os"
	"runtime/pprof"
)

// Profile is the CPU profile of a child over its window. The zero value is not under way; one goroutine uses it.
type Profile struct{ file *os.File }

// Begin starts it into a file; an empty path means none.
func (p *Profile) Begin(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return err
	}
	p.file = f
	return nil
}

// End stops it. Idempotent; nothing when it is not under way.
func (p *Profile) End() error {
	if p.file == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := p.file.Close()
	p.file = nil
	return err
}
