package frontend

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestManyClientsConnectAtOnce holds that a crowd at the door is served: none is reset, none waits for a retransmission
// for long.
func TestManyClientsConnectAtOnce(t *testing.T) {
	const n = 1500
	b := serve(t, &scripted{}, nil)
	var at, clients sync.WaitGroup
	at.Add(1)
	for range n {
		clients.Go(func() {
			at.Wait()
			c, err := net.DialTimeout("tcp", b.addr, 3*patience)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(3 * patience))
			fmt.Fprint(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Error(resp.Status)
			}
		})
	}
	at.Done()
	clients.Wait()
}
