// Package outpath is a layer between an HTTP server and its TCP connections. On a connection of its Listener, Write can
// be made to never wait, so that the goroutine that brings a token may write it, whatever the client does.
//
// A Batch sends what one such goroutine writes to many connections with one system call, where the kernel has io_uring
// and lets it be used.
//
// It sits below net/http and below TLS; both see an ordinary net.Conn.
package outpath
