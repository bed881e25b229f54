package responseplane_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// A pass of the engine puts a token on each of many responses, and they arrive in one read. Their sinks are called one
// after the other in one Pass, so what they write can be sent once, at the end of it.
func ExampleResponse_OnPass() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	frontend, worker, stop := connect(responseplane.FrontendConfig{})
	defer stop()

	const responses = 3
	var batch []string // of the pass: all sinks of it are called on one goroutine
	sent := make(chan []string, 2*responses)
	send := func() { sent <- batch; batch = nil } // made once, so that a pass allocates nothing for it
	var writers []*responseplane.Writer
	for i := range responses {
		response := mint(ctx, frontend, worker)
		defer response.Close()
		response.OnPass(func(pass *responseplane.Pass, records [][]byte, end error) bool {
			if pass.Value() == nil { // the first of this pass
				pass.Defer(&batch, send)
			}
			for _, record := range records {
				batch = append(batch, fmt.Sprintf("%d: %s", i, record))
			}
			if end == io.EOF {
				batch = append(batch, fmt.Sprintf("%d has ended", i))
			}
			return true
		})
		w, err := worker.Attach(response.Terms())
		if err != nil {
			log.Fatal(err)
		}
		writers = append(writers, w)
	}

	for _, w := range writers {
		if err := w.Put(ctx, []byte("token")); err != nil {
			log.Fatal(err)
		}
		if err := w.PutComplete(nil); err != nil {
			log.Fatal(err)
		}
	}
	worker.Flush()
	for n := 0; n < 2*responses; { // one read, or more on a busy machine
		lines := <-sent
		n += len(lines)
		for _, line := range lines {
			fmt.Println(line)
		}
	}
	// Output:
	// 0: token
	// 0 has ended
	// 1: token
	// 1 has ended
	// 2: token
	// 2 has ended
}
