package responseplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	discoverymemory "github.com/laneway-ai/laneway/discovery/memory"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A frontend and a worker process with a request path of their own: the frontend mints terms, the request carries them,
// and the worker attaches by them. Here both live in one process, over the plane "memory"; over a network only the
// transports differ (transport/tcp, transport/quic).
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	network := memory.NewNetwork(memory.Config{})

	// The worker process: one Worker, however many engines it hosts.
	workerID, err := transport.NewIdentity()
	if err != nil {
		log.Fatal(err)
	}
	workerPlane := network.Transport(workerID.ID)
	defer workerPlane.Close()
	worker, err := responseplane.NewWorker(responseplane.WorkerConfig{
		Identity: workerID, Name: "worker-a", Transports: []transport.Transport{workerPlane},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close()
	if err := worker.Listen(ctx); err != nil {
		log.Fatal(err)
	}

	// The frontend process.
	frontID, err := transport.NewIdentity()
	if err != nil {
		log.Fatal(err)
	}
	frontPlane := network.Transport(frontID.ID)
	defer frontPlane.Close()
	frontend, err := responseplane.NewFrontend(responseplane.FrontendConfig{
		Identity: frontID, Transports: []transport.Transport{frontPlane},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer frontend.Close()

	// The descriptor is JSON and may travel any way you like; the frontend dials what it describes.
	node, err := frontend.AddPeer(worker.Descriptor())
	if err != nil {
		log.Fatal(err)
	}
	if err := frontend.AwaitPeer(ctx, node); err != nil {
		log.Fatal(err)
	}

	// Your request path: a queue here. The terms go with the prompt.
	type request struct {
		prompt string
		terms  []byte
	}
	requests := make(chan request, 1)

	go func() { // the worker's end of it
		req := <-requests
		w, err := worker.Attach(req.terms)
		if err != nil {
			log.Print(err) // stale or refused: tell the frontend on your own path
			return
		}
		for _, token := range []string{"Hello", ",", " ", req.prompt} {
			if err := w.Put(ctx, []byte(token)); err != nil {
				return // killed or lost: nobody listens any more
			}
			w.Flush() // the end of a pass
		}
		_ = w.Complete([]byte(`{"tokens":4}`))
	}()

	response, err := frontend.Mint(ctx, workerID.ID, responseplane.MintOptions{FirstRecord: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer response.Close() // always: it gives the slot back, and kills what has not ended
	requests <- request{prompt: "world", terms: response.Terms()}

	for {
		batch, err := response.NextBatch(ctx) // all that is ready, one wake for it
		if err == io.EOF {
			break // the worker completed it, and all records came
		}
		if err != nil {
			log.Fatal(err) // every other end is a *responseplane.Error
		}
		for _, record := range batch { // valid until the next call
			fmt.Printf("%s", record)
		}
	}
	fmt.Printf("\n%s\n", response.Trailer())
	// Output:
	// Hello, world
	// {"tokens":4}
}

// Open over discovery: the frontend follows a registry, and a request goes to one of the workers that serve its model.
func ExampleFrontend_Open() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	hub, err := discoverymemory.New(discoverymemory.Config{}) // etcd and NATS in a real cluster
	if err != nil {
		log.Fatal(err)
	}
	registry, _ := hub.Registry("example")
	defer registry.Close()
	deliverer, _ := hub.Deliverer("example")
	defer deliverer.Close()
	frontend, worker, stop := connect(responseplane.FrontendConfig{Deliverer: deliverer})
	defer stop()

	// The worker process serves one worker and then says so in the registry. The handler must not block: it starts the
	// work and answers.
	record := discovery.Worker{ID: "engine-0", Models: []string{"tiny"}, Node: worker.Descriptor()}
	service, err := worker.Serve(ctx, deliverer, record,
		func(req discovery.Request, w *responseplane.Writer) discovery.Reply {
			go func() {
				if err := w.Send(ctx, append([]byte("you said: "), req.Payload...)); err != nil {
					return
				}
				_ = w.Complete(nil)
			}()
			return discovery.Reply{Answer: discovery.Accepted}
		})
	if err != nil {
		log.Fatal(err)
	}
	defer service.Drain(ctx)
	if _, err := registry.Register(ctx, []discovery.Worker{record}); err != nil {
		log.Fatal(err)
	}

	// The frontend follows the registry for as long as it runs.
	following := make(chan error, 1)
	followCtx, unfollow := context.WithCancel(ctx)
	go func() { following <- frontend.Follow(followCtx, registry) }()
	defer func() { unfollow(); <-following }()
	for frontend.Ready() != nil {
		time.Sleep(time.Millisecond)
	}

	response, err := frontend.Open(ctx, responseplane.Request{
		ID: "request-1", Model: "tiny", Payload: []byte("hello"), FirstRecordTimeout: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err) // *responseplane.Error: busy, unavailable, deadline, ...; other workers were tried already
	}
	defer response.Close()
	for {
		token, err := response.Next(ctx)
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Printf("%s from %s\n", token, response.Worker())
	}

	// A model that nobody serves.
	_, err = frontend.Open(ctx, responseplane.Request{Model: "huge"})
	fmt.Println(errors.Is(err, responseplane.ErrUnavailable))
	// Output:
	// you said: hello from engine-0
	// EOF
	// true
}

// sequence is what the engine of the pass loop example runs for one response.
type sequence struct {
	w       *responseplane.Writer
	left    int    // tokens to make
	waiting []byte // a token that found the window full
	room    atomic.Bool
}

// The pass loop of an engine that never blocks: one token for each sequence, one Flush for the pass. A sequence whose
// consumer is slow is parked until there is room, and holds up no other.
func ExampleWorker_Flush() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	frontend, worker, stop := connect(responseplane.FrontendConfig{StreamWindow: 4 << 10})
	defer stop()

	const tokens = 200 // of 40 bytes: more than the window of 4 KiB holds
	var responses []*responseplane.Response
	var running []*sequence
	for range 3 {
		r := mint(ctx, frontend, worker)
		defer r.Close()
		w, err := worker.Attach(r.Terms())
		if err != nil {
			log.Fatal(err)
		}
		s := &sequence{w: w, left: tokens}
		w.OnWritable(func() { s.room.Store(true) }) // on a lane's reader: note it, no more
		responses, running = append(responses, r), append(running, s)
	}

	parked := 0
	pass := func() {
		for i := 0; i < len(running); i++ {
			s := running[i]
			token := s.waiting
			switch {
			case s.w.Err() != nil: // killed or lost: free its place
				running = append(running[:i], running[i+1:]...)
				i--
				continue
			case token != nil && !s.room.Load(): // parked
				continue
			case token == nil:
				token = fmt.Appendf(nil, "%040d", s.left)
			}
			s.room.Store(false)
			s.waiting = nil
			if err := s.w.TryPut(token); errors.Is(err, responseplane.ErrWindowFull) {
				s.waiting = token // park it: OnWritable tells when it can go on
				parked++
				continue
			} else if err != nil {
				continue // the next pass sees Err
			}
			if s.left--; s.left == 0 {
				_ = s.w.Complete(nil)
				running = append(running[:i], running[i+1:]...)
				i--
			}
		}
		worker.Flush() // one write for each frontend, with what all sequences have put
	}

	// The second consumer does not read until the others are done; they are not held up by it.
	done := make(chan int)
	read := func(r *responseplane.Response) {
		n := 0
		for {
			batch, err := r.NextBatch(ctx)
			n += len(batch)
			if err != nil {
				done <- n
				return
			}
		}
	}
	go read(responses[0])
	go read(responses[2])
	for finished := 0; finished < 3; {
		pass()
		select {
		case n := <-done:
			fmt.Println("a response of", n, "tokens")
			if finished++; finished == 2 {
				fmt.Println("the slow one was parked:", running[0].waiting != nil)
				go read(responses[1])
			}
		case <-time.After(100 * time.Microsecond): // the forward pass
		}
	}
	fmt.Println("parked at all:", parked > 0)
	// Output:
	// a response of 200 tokens
	// a response of 200 tokens
	// the slow one was parked: true
	// a response of 200 tokens
	// parked at all: true
}

// Kill reaches the engine, before the first record as well as after it: Done is closed, and Err says why.
func ExampleResponse_Kill() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	frontend, worker, stop := connect(responseplane.FrontendConfig{})
	defer stop()

	response := mint(ctx, frontend, worker)
	defer response.Close()
	w, err := worker.Attach(response.Terms())
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Send(ctx, []byte("first")); err != nil {
		log.Fatal(err)
	}
	token, err := response.Next(ctx)
	fmt.Printf("%s %v\n", token, err)

	response.Kill() // the client has gone
	<-w.Done()
	var end *responseplane.Error
	if errors.As(w.Err(), &end) {
		fmt.Println("engine:", end.Kind, errors.Is(end, responseplane.ErrCanceled))
	}
	fmt.Println("engine:", errors.Is(w.Send(ctx, []byte("second")), responseplane.ErrCanceled))
	_, err = response.Next(ctx)
	fmt.Println("consumer:", errors.Is(err, responseplane.ErrCanceled))
	// Output:
	// first <nil>
	// engine: killed true
	// engine: true
	// consumer: true
}

// A sink takes the records on the reader of the lane: no goroutine is woken for them. It must not wait; what it cannot
// take now it leaves ("false"), and NextBatch gives it later.
func ExampleResponse_OnRecords() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	frontend, worker, stop := connect(responseplane.FrontendConfig{})
	defer stop()

	response := mint(ctx, frontend, worker)
	defer response.Close()
	var text []byte
	ended := make(chan error, 1) // room for the one end, so that the sink never waits
	response.OnRecords(func(records [][]byte, end error) bool {
		for _, record := range records {
			text = append(text, record...) // records are valid during the call only
		}
		if end != nil { // the last call
			ended <- end
		}
		return true
	})

	// Only now may the request with the terms go out.
	w, err := worker.Attach(response.Terms())
	if err != nil {
		log.Fatal(err)
	}
	for _, token := range []string{"to", "ken", "s"} {
		if err := w.Send(ctx, []byte(token)); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Complete(nil); err != nil {
		log.Fatal(err)
	}
	err = <-ended
	fmt.Printf("%s, then %v\n", text, err)
	// Output:
	// tokens, then EOF
}

// connect makes a frontend and a worker over the plane "memory", as the first example shows it in full.
func connect(cfg responseplane.FrontendConfig) (*responseplane.Frontend, *responseplane.Worker, func()) {
	network := memory.NewNetwork(memory.Config{})
	workerID, err := transport.NewIdentity()
	if err != nil {
		log.Fatal(err)
	}
	workerPlane := network.Transport(workerID.ID)
	worker, err := responseplane.NewWorker(responseplane.WorkerConfig{Identity: workerID, Name: "worker-a",
		Transports: []transport.Transport{workerPlane}})
	if err != nil {
		log.Fatal(err)
	}
	if err := worker.Listen(context.Background()); err != nil {
		log.Fatal(err)
	}
	if cfg.Identity, err = transport.NewIdentity(); err != nil {
		log.Fatal(err)
	}
	frontPlane := network.Transport(cfg.Identity.ID)
	cfg.Transports = []transport.Transport{frontPlane}
	frontend, err := responseplane.NewFrontend(cfg)
	if err != nil {
		log.Fatal(err)
	}
	return frontend, worker, func() {
		_ = frontend.Close()
		_ = worker.Close()
		_ = frontPlane.Close()
		_ = workerPlane.Close()
	}
}

// mint makes the worker known to the frontend and mints a response from it.
func mint(ctx context.Context, frontend *responseplane.Frontend, worker *responseplane.Worker) *responseplane.Response {
	node, err := frontend.AddPeer(worker.Descriptor())
	if err != nil {
		log.Fatal(err)
	}
	if err := frontend.AwaitPeer(ctx, node); err != nil {
		log.Fatal(err)
	}
	response, err := frontend.Mint(ctx, node, responseplane.MintOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return response
}
