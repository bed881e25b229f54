//go:build !linux

package transportbench

import "errors"

func (h *handler) openGroup(Spec) (string, func() error, error) {
	return "", nil, errors.New("sockets that share a port are measured on Linux only")
}
