//go:build !linux

package loadgen

import (
	"errors"
	"fmt"
)

const haveLoops = false

func newLoopClient(_ *engine, kind string) (client, error) {
	return nil, fmt.Errorf("the %s client needs Linux: use the goroutines client", kind)
}

func probeRing() error { return errors.ErrUnsupported }
