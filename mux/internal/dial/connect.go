package dial

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	// dialTimeout bounds one dial with its handshake; fallbackAfter bounds it where the peer has another plane, and
	// fallbackMute where besides the lane has just been silent for as long as it takes to find it dead.
	dialTimeout   = 5 * time.Second
	fallbackAfter = 3 * time.Second
	fallbackMute  = time.Second
	// hedgeAfter is how long an endpoint may take to answer before the next one of the same node is tried beside it: a
	// port that is blocked says nothing.
	hedgeAfter = time.Second
)

// errRefusedEverywhere says that every endpoint of the peer refused a connection.
var errRefusedEverywhere = errors.New("every endpoint refused the connection")

// patience is how long a dial may take: with its handshake, from when it has its turn, and the first endpoint alone.
type patience struct{ all, hedge time.Duration }

// patienceFor is that for plane i of n.
func patienceFor(i, n int) patience {
	if i < n-1 {
		return patience{fallbackAfter, hedgeAfter}
	}
	return patience{dialTimeout, hedgeAfter}
}

// dialling is one attempt to bring a connection of a lane up.
type dialling struct {
	peer   *peer
	lane   int
	route  route
	may    patience
	begins bool // a link: it waits for its turn among those
	slow   bool // set: it took longer than a place in a gate is kept
}

// dial makes the connection and has greet do the rest. It closes the connection unless greet succeeds.
func (d *dialling) dial(ctx context.Context, greet func(context.Context, transport.Conn) error) (err error) {
	r, plane := d.peer.recv, d.route.plane()
	if err := r.files.take(r, plane, d.lane); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.files.give(plane)
			err = r.files.explain(r, err)
		}
	}()
	pass, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer pass()
	begun := time.Now()
	defer func() { d.slow = time.Since(begun) >= gateFor }()
	ctx, cancel := context.WithTimeout(ctx, d.may.all)
	defer cancel()
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	if err := greet(ctx, conn); err != nil {
		_ = conn.Close()
		r.cfg.Pipe.Stats.Deaths.Add(pipe.DownHandshake)
		return fmt.Errorf("%s %s: %w", plane, conn.Info().Remote, err)
	}
	return nil
}

// enter waits for the dial's turn.
func (d *dialling) enter(ctx context.Context) (pass func(), err error) {
	p, gates := d.peer, &d.peer.recv.gates
	if !d.begins {
		return gates.again.enter(ctx)
	}
	gate := gates.begin
	if p.slow.Load() {
		gate = gates.slow
	}
	waiting, leave := context.WithCancel(ctx)
	defer leave()
	if !p.queue(leave) {
		return nil, errRenewed
	}
	defer p.queue(nil)
	pass, err = gate.enter(waiting)
	if err != nil && ctx.Err() == nil {
		err = errRenewed
	}
	return pass, err
}

// connect opens a connection to the first endpoint that answers: the lane's own, or a later one after failures. Each
// has the time of hedge for itself.
func (d *dialling) connect(ctx context.Context) (transport.Conn, error) {
	type answer struct {
		conn transport.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	r, pace, n := d.peer.recv, &d.peer.paces[d.lane], len(d.route.endpoints)
	first := int(r.cfg.ID[0])<<8 | int(r.cfg.ID[1]) + d.lane + pace.attempts()
	answers := make(chan answer, n)
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	begun, pending, refused := 0, 0, 0
	begin := func() { // the next one, when that is allowed
		if begun == n {
			return
		}
		if wait := pace.wait(r.cfg.Now()); wait > 0 {
			next.Reset(wait)
			return
		}
		next.Reset(d.may.hedge)
		address := d.route.endpoints[(first+begun)%n]
		begun++
		pending++
		pace.dialled(r.cfg.Now())
		go func() {
			req := transport.DialRequest{Address: address, Peer: d.peer.id, Lane: d.lane}
			conn, err := d.route.transport.Dial(ctx, req)
			if err != nil {
				err = fmt.Errorf("%s %s: %w", d.route.plane(), address, err)
			}
			answers <- answer{conn, err}
		}()
	}
	defer func() { // the losers end with ctx; joined here
		cancel()
		for range pending {
			if a := <-answers; a.conn != nil {
				_ = a.conn.Close()
			}
		}
	}()
	var errs []error
	begin()
	for pending > 0 || begun < n {
		select {
		case a := <-answers:
			pending--
			if a.err == nil {
				return a.conn, nil
			}
			errs = append(errs, a.err)
			if errors.Is(a.err, syscall.ECONNREFUSED) {
				refused++
			}
			if transport.Denied(a.err) {
				return nil, errors.Join(errs...)
			}
			begin()
		case <-next.C:
			begin()
		case <-ctx.Done():
			return nil, errors.Join(append(errs, fmt.Errorf("%s: %w", d.route.plane(), ctx.Err()))...)
		}
	}
	if refused == n {
		errs = append(errs, errRefusedEverywhere)
	}
	return nil, errors.Join(errs...)
}

// exchange says HELLO on a new connection and reads the peer's, which must answer it. The connection is closed when ctx
// ends.
func (k *Link) exchange(ctx context.Context, conn transport.Conn, own *wire.HelloBody) (*wire.HelloBody, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(wire.AppendHello(nil, own)); err != nil {
		return nil, fmt.Errorf("mux: send HELLO: %w", errors.Join(err, ctx.Err()))
	}
	hello, err := pipe.ReadHello(conn)
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	if _, err := wire.MeetVersion(hello.Lowest, hello.Highest); err != nil {
		return nil, err
	}
	if transport.NodeID(hello.Node) != k.peer.id {
		return nil, &transport.IdentityError{Address: conn.Info().Remote.String(), Want: k.peer.id, Got: hello.Node}
	}
	secret := k.peerSecret
	if own.PeerSecret == ([16]byte{}) {
		secret = hello.OwnSecret // the link's first answer names it
	}
	if !pipe.SameSecrets(k.ownSecret, secret, hello) || hello.Link != own.Link || hello.Lane != own.Lane ||
		hello.Serial != own.Serial {
		return nil, &wire.Error{Kind: wire.Hello, Reason: "answers another HELLO"}
	}
	if !stop() {
		return nil, ctx.Err()
	}
	return hello, nil
}
