//go:build !linux

package main

import "testing"

// remains cannot look into other processes here.
func remains(t *testing.T) (check func(atLeast int)) { return func(int) {} }
