//go:build !linux

package loadgen

// sharedCores cannot be found out here.
func sharedCores(string) (bool, string) { return false, "" }
