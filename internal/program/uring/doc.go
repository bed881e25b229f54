// Package uring is the part of Linux's io_uring that the out path and the load generator use: a ring that one goroutine
// at a time serves, sends, polls, receives that stay armed, and a ring of buffers for them. It is raw system calls: no
// cgo, no module.
//
// A kernel may lack io_uring or a part of it, and a sandbox may forbid it: ask ProbeReceive, or try, and have another
// way.
package uring
