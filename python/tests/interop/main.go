// Command interop is the frontend of the tests of the Python worker: the real one, told what to do line by line. The
// first line of its input is the worker's descriptor; then "mint N", "open", "stop I", "kill I", "stall I", "quit". It
// prints "terms I HEX", "open I HEX", and of each response, when it has ended, "end I KIND RECORDS WRONG TRAILER".
// Record j of response i must begin with "i:j ".
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/tcp"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// driver is the frontend and the responses that it has minted.
type driver struct {
	plane     *responseplane.Frontend
	node      responseplane.NodeID
	mu        sync.Mutex // of the output and of responses
	responses map[int]*responseplane.Response
	next      int
	wg        sync.WaitGroup
	delay     time.Duration
}

func (d *driver) say(format string, a ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Printf(format+"\n", a...)
}

func run() error {
	plane := flag.String("plane", "tls", "tcp or tls")
	lanes := flag.Int("lanes", 1, "connections")
	window := flag.Int("window", 0, "bytes of a stream's window, 0 = the default")
	delay := flag.Duration("delay", 0, "how long a consumer waits before each read")
	patience := flag.Duration("patience", 20*time.Second, "how long to wait for the worker")
	ca, cert := flag.String("ca", "", "file of the authorities"), flag.String("cert", "", "certificate file")
	key, name := flag.String("key", "", "key file"), flag.String("peer-name", "", "name of the worker's certificate")
	flag.Parse()
	identity, err := transport.NewIdentity()
	if err != nil {
		return err
	}
	config := tcp.Config{Identity: identity, TLS: *plane == "tls"}
	if *ca != "" {
		config.Authority, err = transport.NewAuthority(
			transport.AuthorityConfig{CAFile: *ca, CertFile: *cert, KeyFile: *key, PeerName: *name})
		if err != nil {
			return err
		}
	}
	t, err := tcp.New(config)
	if err != nil {
		return err
	}
	frontend, err := responseplane.NewFrontend(responseplane.FrontendConfig{
		Identity: identity, Transports: []transport.Transport{t}, Lanes: *lanes, StreamWindow: *window})
	if err != nil {
		return err
	}
	defer frontend.Close()
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var worker responseplane.Descriptor
	if err := json.Unmarshal(line, &worker); err != nil {
		return err
	}
	if _, err := frontend.AddPeer(worker); err != nil {
		return err
	}
	node, err := transport.ParseNodeID(worker.ID)
	if err != nil {
		return err
	}
	d := &driver{plane: frontend, node: node, responses: map[int]*responseplane.Response{}, delay: *delay}
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	if err := frontend.AwaitPeer(ctx, node); err != nil {
		return err
	}
	d.say("ready")
	defer d.wg.Wait()
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		words := strings.Fields(line)
		n := 1
		if len(words) > 1 {
			n, _ = strconv.Atoi(words[1])
		}
		if words[0] == "quit" {
			d.say("lanes %d", len(frontend.Stats().Lanes))
			return nil
		}
		if err := d.do(words[0], n); err != nil {
			return err
		}
	}
}

func (d *driver) do(word string, n int) error {
	switch word {
	case "mint":
		for range n {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			r, err := d.plane.Mint(ctx, d.node, responseplane.MintOptions{})
			cancel()
			if err != nil {
				return err
			}
			d.begin("terms", r.Terms(), r, nil)
		}
	case "open":
		p, err := d.plane.MintOpen(responseplane.MintOptions{})
		if err != nil {
			return err
		}
		d.begin("open", p.Terms(), nil, p)
	case "stop", "kill":
		d.mu.Lock()
		r := d.responses[n]
		d.mu.Unlock()
		if word == "stop" {
			r.Stop()
		} else {
			r.Kill()
		}
	default:
		return fmt.Errorf("unknown command %q", word)
	}
	return nil
}

func (d *driver) begin(what string, terms []byte, r *responseplane.Response, p *responseplane.Pending) {
	i := d.next
	d.next++
	d.mu.Lock()
	d.responses[i] = r
	d.mu.Unlock()
	d.say("%s %d %x", what, i, terms)
	d.wg.Go(func() {
		if p != nil {
			defer p.Close()
			var err error
			if r, err = p.Wait(context.Background()); err != nil {
				d.say("end %d unclaimed 0 0 -", i)
				return
			}
		}
		d.consume(i, r)
	})
}

// consume reads a response to its end and checks every record.
func (d *driver) consume(i int, r *responseplane.Response) {
	defer r.Close()
	records, wrong := 0, 0
	for {
		time.Sleep(d.delay)
		batch, err := r.NextBatch(context.Background())
		for _, record := range batch {
			if !bytes.HasPrefix(record, fmt.Appendf(nil, "%d:%d ", i, records)) {
				wrong++
			}
			records++
		}
		if err == nil {
			continue
		}
		kind, text, trailer := "complete", "", r.Trailer()
		var e *responseplane.Error
		if errors.As(err, &e) {
			kind, text, trailer = e.Kind.String(), e.Text, e.Trailer
		} else if !errors.Is(err, io.EOF) {
			kind = "odd"
		}
		d.say("end %d %s %d %d %x %q", i, kind, records, wrong, trailer, text)
		return
	}
}
