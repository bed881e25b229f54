//go:build !unix

package tcp

import "github.com/laneway-ai/laneway/transport"

// tryWriter is empty: lanes of this system have no TryWrite.
type tryWriter struct{}

func (c *conn) handle() transport.Conn { return c }
