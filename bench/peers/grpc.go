package peers

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

const (
	grpcMethod = "/laneway.bench.Engine/Respond"
	// grpcTrailer names the trailer's metadata; "-bin" says that it holds bytes.
	grpcTrailer = "laneway-bench-bin"
)

// GRPC is server streaming of gRPC-Go: one HTTP/2 connection from each frontend to each worker process, a call for each
// response, a message (google.protobuf.BytesValue) for each record.
func GRPC() planebench.Peer {
	return planebench.Peer{
		Name: "grpc", Deliveries: pulled(),
		Worker: func(cfg planebench.PeerConfig, serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker,
			error) {
			w := &grpcWorker{cfg: cfg, serve: serve, done: make(chan struct{})}
			w.server = grpc.NewServer()
			w.server.RegisterService(&grpc.ServiceDesc{
				ServiceName: "laneway.bench.Engine", HandlerType: (*any)(nil),
				Streams: []grpc.StreamDesc{{StreamName: "Respond", Handler: w.respond, ServerStreams: true}},
			}, w)
			return w, nil
		},
		Frontend: func(planebench.PeerConfig) (planebench.PeerFrontend, error) {
			return &grpcFrontend{conns: map[int]*grpc.ClientConn{}}, nil
		},
	}
}

type grpcWorker struct {
	cfg    planebench.PeerConfig
	serve  func([]byte, planebench.PeerWriter) error
	server *grpc.Server
	wg     sync.WaitGroup
	done   chan struct{}
	once   sync.Once
}

func (w *grpcWorker) Listen(ctx context.Context) (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.wg.Go(func() { // ends with the server
		if err := w.server.Serve(ln); err != nil {
			w.cfg.Log.Error("the gRPC server has ended", "error", err)
		}
	})
	return ln.Addr().String(), nil
}

// respond is the goroutine of one response, gRPC's own.
func (w *grpcWorker) respond(_ any, stream grpc.ServerStream) error {
	var request wrapperspb.BytesValue
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	q := newQueue()
	if err := w.serve(request.GetValue(), q); err != nil {
		return err
	}
	for {
		frames, _, err := q.take(w.done)
		if err != nil {
			return err
		}
		for len(frames) > 0 {
			body, rest, end, ok, err := nextFrame(frames)
			if err != nil || !ok {
				return errors.Join(err, io.ErrUnexpectedEOF)
			}
			frames = rest
			if end {
				stream.SetTrailer(metadata.Pairs(grpcTrailer, string(body)))
				return nil
			}
			// A message must not be changed after SendMsg, so its bytes are its own.
			if err := stream.SendMsg(wrapperspb.Bytes(append([]byte(nil), body...))); err != nil {
				q.fail(err)
				return err
			}
		}
	}
}

// Flush does nothing: each record has woken the goroutine of its response.
func (w *grpcWorker) Flush() {}

func (w *grpcWorker) Close() error {
	w.once.Do(func() { close(w.done) })
	w.server.Stop()
	w.wg.Wait()
	return nil
}

type grpcFrontend struct {
	mu    sync.Mutex
	conns map[int]*grpc.ClientConn // by worker process
}

// Connect makes a connection that gRPC opens with its first call.
func (f *grpcFrontend) Connect(_ context.Context, worker int, address string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	conn.Connect()
	f.mu.Lock()
	f.conns[worker] = conn
	f.mu.Unlock()
	return nil
}

func (f *grpcFrontend) Open(ctx context.Context, worker int, request []byte) (planebench.PeerResponse, error) {
	f.mu.Lock()
	conn := f.conns[worker]
	f.mu.Unlock()
	if conn == nil {
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, grpcMethod, grpc.WaitForReady(true))
	if err == nil {
		err = stream.SendMsg(wrapperspb.Bytes(append([]byte(nil), request...)))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &grpcResponse{stream: stream, cancel: cancel, batch: make([][]byte, 1)}, nil
}

func (f *grpcFrontend) Close() error {
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	f.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

type grpcResponse struct {
	stream  grpc.ClientStream
	cancel  context.CancelFunc
	message wrapperspb.BytesValue
	batch   [][]byte
}

// NextBatch returns one record: gRPC does not say whether another is there.
func (r *grpcResponse) NextBatch(context.Context) ([][]byte, error) {
	if err := r.stream.RecvMsg(&r.message); err != nil {
		return nil, err // io.EOF after status OK
	}
	r.batch[0] = r.message.GetValue()
	return r.batch, nil
}

func (r *grpcResponse) Trailer() []byte {
	if v := r.stream.Trailer().Get(grpcTrailer); len(v) == 1 {
		return []byte(v[0])
	}
	return nil
}

func (r *grpcResponse) Kill() { r.cancel() }

func (r *grpcResponse) Close() error {
	r.cancel()
	return nil
}
