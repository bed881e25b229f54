//go:build !unix

package procstat

func selfCPU() (CPU, bool) { return CPU{}, false }
