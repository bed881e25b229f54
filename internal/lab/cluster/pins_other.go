//go:build !linux

package cluster

import "errors"

const cpuRoot = ""

var errNoPins = errors.New("processes are pinned to cores on Linux only")

func allowedCores() (coreSet, error) { return nil, errNoPins }

func physicalCores(string, coreSet) []coreSet { return nil }

func onCores(coreSet, func() error) (bool, error) { return true, errNoPins }

func pinProcess(int, coreSet) error { return errNoPins }
