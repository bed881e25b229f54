// Package outpath is a layer between an HTTP server and its TCP connections. On a connection of its Listener, Write can be made to never
// wait, so that the goroutine that brings a token may write it, whatever the client does.
//
// It sits below net/http and below TLS; both see an ordinary net.Conn.
package outpath
