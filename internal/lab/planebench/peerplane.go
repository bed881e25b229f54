package planebench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// opener is a consuming side whose requests travel its own way.
type opener interface {
	open(ctx context.Context, process int, q request) (response, error)
}

// peerFront is a peer's consuming side. add is called in the order of the worker processes.
type peerFront struct {
	PeerFrontend
	added int
}

func (f *peerFront) add(ctx context.Context, n discovery.Node) error {
	if len(n.Planes) != 1 || len(n.Planes[0].Endpoints) != 1 {
		return errors.New("a worker process of a peer has not said its address")
	}
	err := f.Connect(ctx, f.added, n.Planes[0].Endpoints[0])
	f.added++
	return err
}

func (f *peerFront) mint(context.Context, transport.NodeID) (response, error) {
	return nil, errors.New("a peer opens responses, it does not mint them")
}

func (f *peerFront) open(ctx context.Context, process int, q request) (response, error) {
	r, err := f.Open(ctx, process, appendRequest(make([]byte, 0, requestHead), q))
	if err != nil {
		return nil, err
	}
	return peerResponse{r}, nil
}

// Stats are empty: what a peer carried is counted by the harness, at both ends.
func (f *peerFront) Stats() responseplane.Stats { return responseplane.Stats{} }

type peerResponse struct{ PeerResponse }

func (r peerResponse) Terms() []byte { return nil }

// Stop does nothing: the request path has told the worker process.
func (r peerResponse) Stop() {}

func (r peerResponse) OnRecords(f func([][]byte, error) bool) { r.PeerResponse.(PeerSink).OnRecords(f) }

// peerWorker is a peer's writing side.
type peerWorker struct {
	PeerWorker
	id      *transport.Identity
	address string
}

func (w *peerWorker) Listen(ctx context.Context) (err error) {
	w.address, err = w.PeerWorker.Listen(ctx)
	return err
}

func (w *peerWorker) Descriptor() discovery.Node {
	return discovery.Node{ID: w.id.ID.String(), WireMin: 1, WireMax: 1,
		Planes: []discovery.Plane{{Name: "peer", Endpoints: []string{w.address}}}}
}

func (w *peerWorker) attach([]byte) (recordWriter, error) {
	return nil, errors.New("a request to a peer came over the request path")
}

func (w *peerWorker) Stats() responseplane.Stats { return responseplane.Stats{} }

type peerWriter struct{ PeerWriter }

func (w peerWriter) StopRequested() bool { return false } // the process has been told

// peerConfig is what this process tells its peer.
func (c *child) peerConfig() PeerConfig {
	cfg := PeerConfig{Index: c.cfg.Index, Delivery: c.cfg.Delivery, Load: c.cfg.Load, Broker: c.cfg.Broker, Log: c.log}
	if len(c.transports) > 0 {
		cfg.Transport = c.transports[0]
	}
	return cfg
}

// servePeer starts the response that a request of a peer asks for.
func (r *workerRole) servePeer(b []byte, w PeerWriter) error {
	q, err := parseRequest(b)
	if err != nil {
		return err
	}
	return r.run(q, peerWriter{w})
}

// stopFrom is the word on the request path that a frontend has begun to stop: a request for no engine.
const stopFrom = 1<<32 - 1

// stopAt asks the engines of this process to finish what runs for a frontend.
func (r *workerRole) stopAt(frontend uint64) error {
	if frontend >= uint64(len(r.stopped)) {
		return fmt.Errorf("frontend %d of %d stops", frontend, len(r.stopped))
	}
	r.stopped[frontend].Store(true)
	return nil
}

// run gives a job to its engine.
func (r *workerRole) run(q request, w recordWriter) error {
	if q.engine >= len(r.engines) {
		return fmt.Errorf("a request for engine %d of %d", q.engine, len(r.engines))
	}
	slot := q.id>>32 - 1
	r.engines[q.engine].add(&job{w: w, id: q.id, total: uint32(q.records), bytes: q.bytes,
		stopped: &r.stopped[slot%uint64(len(r.stopped))]})
	return nil
}

// appendRequest writes a request without its length.
func appendRequest(b []byte, q request) []byte {
	b = binary.BigEndian.AppendUint64(b, q.id)
	b = binary.BigEndian.AppendUint32(b, uint32(q.engine))
	b = binary.BigEndian.AppendUint32(b, uint32(q.records))
	b = binary.BigEndian.AppendUint32(b, uint32(q.bytes))
	return append(b, q.terms...)
}

// brokerRole is what runs between the two sides of a peer.
type brokerRole struct {
	*child
	broker PeerBroker
}

func (r *brokerRole) start(ctx context.Context) (message, error) {
	var err error
	if r.broker, err = r.peer.Broker(r.peerConfig()); err != nil {
		return message{}, err
	}
	address, err := r.broker.Start(ctx)
	return message{Op: opReady, Broker: address}, err
}

func (r *brokerRole) begin()           {}
func (r *brokerRole) end() *Consumer   { return nil }
func (r *brokerRole) finish() *Totals  { return &Totals{} }
func (r *brokerRole) stats() mux.Stats { return mux.Stats{} }
func (r *brokerRole) count(*Usage)     {}

func (r *brokerRole) close() error {
	if r.broker == nil {
		return nil
	}
	return r.broker.Close()
}
