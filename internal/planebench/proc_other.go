//go:build !unix

package planebench

import "os/exec"

func ownGroup(*exec.Cmd) {}
