package discoverytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
)

// RegistryEnv is a place where registries of several processes meet.
type RegistryEnv struct {
	// Open is the registry of one more process. The suite closes it.
	Open func(t *testing.T, namespace string) discovery.Registry
	// Crash makes a registry of Open end the way a killed process does: nothing is taken out. Nil: not testable.
	Crash func(t *testing.T, reg discovery.Registry)
	// PutRaw and DeleteRaw change the record at a worker's place from outside. Nil: not testable.
	PutRaw    func(t *testing.T, namespace, workerID string, data []byte)
	DeleteRaw func(t *testing.T, namespace, workerID string)
	// ReadOnly says that Register must fail, and that PutRaw and DeleteRaw are how workers come and go.
	ReadOnly bool
	// Settle is how long an event may be on its way, for asserting that none comes. Default: 100 ms.
	Settle time.Duration
}

// RunRegistry runs the suite. env is called once for each test.
func RunRegistry(t *testing.T, env func(t *testing.T) RegistryEnv) {
	tests := []struct {
		name string
		run  func(*testing.T, RegistryEnv)
	}{
		{"ListThenWatch", testListThenWatch},
		{"TwoWatchers", testTwoWatchers},
		{"UpdateOfARecord", testUpdate},
		{"InvalidRecord", testInvalidRecord},
		{"PrefixRespectsSlash", testPrefix},
		{"Namespaces", testNamespaces},
		{"WatchEndsWithItsContext", testWatchContext},
		{"CloseEndsWatches", testCloseEndsWatches},
		{"ReadOnlyRegisterFails", testReadOnly},
		{"Withdraw", testWithdraw},
		{"RegisterRefusesBadInput", testRegisterBadInput},
		{"CloseTakesOut", testCloseTakesOut},
		{"CrashTakesOut", testCrash},
		{"NoGapBetweenListAndWatch", testNoGap},
		{"ManyWorkers", testManyWorkers},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := env(t)
			if e.Settle == 0 {
				e.Settle = 100 * time.Millisecond
			}
			tt.run(t, e)
		})
	}
}

func (e RegistryEnv) open(t *testing.T, namespace string) discovery.Registry {
	t.Helper()
	reg := e.Open(t, namespace)
	t.Cleanup(func() {
		if err := reg.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return reg
}

func (e RegistryEnv) mustRegister(t *testing.T) {
	t.Helper()
	if e.ReadOnly {
		t.Skip("this registry is read-only")
	}
}

func (e RegistryEnv) mustPutRaw(t *testing.T) {
	t.Helper()
	if e.PutRaw == nil || e.DeleteRaw == nil {
		t.Skip("records cannot be changed from outside")
	}
}

// place puts a worker there by itself and returns what takes it out again.
func (e RegistryEnv) place(t *testing.T, namespace string, w discovery.Worker) (remove func()) {
	t.Helper()
	if e.ReadOnly {
		data, err := w.Encode()
		if err != nil {
			t.Fatal(err)
		}
		e.PutRaw(t, namespace, w.ID, data)
		return func() { e.DeleteRaw(t, namespace, w.ID) }
	}
	held := register(t, e.open(t, namespace), w)
	return func() {
		if err := held.Withdraw(within(t)); err != nil {
			t.Error(err)
		}
	}
}

func register(t *testing.T, reg discovery.Registry, workers ...discovery.Worker) discovery.Registration {
	t.Helper()
	held, err := reg.Register(within(t), workers)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Err(); err != nil {
		t.Errorf("Err after Register: %v", err)
	}
	return held
}

func testListThenWatch(t *testing.T, e RegistryEnv) {
	e.place(t, "ns", Worker("a", 1))
	removeB := e.place(t, "ns", Worker("b", 2))

	v := Watch(t, e.open(t, "ns"))
	v.ExpectSet("put a", "put b")
	v.Expect("synced")
	if w := v.Workers["b"]; w.Node.ID != Node(2).ID ||
		w.Node.Planes[0].Endpoints[0] != Node(2).Planes[0].Endpoints[0] || w.Models[0] != "mock" {
		t.Errorf("worker b came out as %+v", w)
	}
	e.place(t, "ns", Worker("c", 3))
	v.Expect("put c")
	removeB()
	v.Expect("delete b")
	v.Quiet(e.Settle)
}

func testTwoWatchers(t *testing.T, e RegistryEnv) {
	reg := e.open(t, "ns")
	first, second := Watch(t, reg), Watch(t, reg)
	first.Expect("synced")
	second.Expect("synced")
	remove := e.place(t, "ns", Worker("a", 1))
	first.Expect("put a")
	second.Expect("put a")
	late := Watch(t, e.open(t, "ns"))
	late.Expect("put a", "synced")
	remove()
	for _, v := range []*View{first, second, late} {
		v.Expect("delete a")
	}
}

func testUpdate(t *testing.T, e RegistryEnv) {
	w := Worker("a", 1)
	if e.ReadOnly {
		e.place(t, "ns", w)
		v := Watch(t, e.open(t, "ns"))
		v.Expect("put a", "synced")
		w.MaxRunning = 7
		e.place(t, "ns", w)
		v.Expect("put a")
		if got := v.Workers["a"].MaxRunning; got != 7 {
			t.Errorf("MaxRunning = %d, want 7", got)
		}
		return
	}
	reg := e.open(t, "ns")
	old := register(t, reg, w)
	v := Watch(t, reg)
	v.Expect("put a", "synced")
	w.MaxRunning = 7
	renewed := register(t, reg, w) // the same node says something new
	v.Expect("put a")
	if got := v.Workers["a"].MaxRunning; got != 7 {
		t.Errorf("MaxRunning = %d, want 7", got)
	}
	if err := old.Withdraw(within(t)); err != nil { // that one's record has been replaced: nothing goes
		t.Error(err)
	}
	v.Quiet(e.Settle)
	if err := renewed.Withdraw(within(t)); err != nil {
		t.Error(err)
	}
	v.Expect("delete a")
}

func testInvalidRecord(t *testing.T, e RegistryEnv) {
	e.mustPutRaw(t)
	e.place(t, "ns", Worker("good", 1))
	e.PutRaw(t, "ns", "broken", []byte(`{"schema":1,"id":"broken"}`))

	v := Watch(t, e.open(t, "ns"))
	for seen := 0; seen < 3; seen++ {
		ev := v.Next()
		switch {
		case ev.Kind == discovery.Put && ev.Worker.ID == "good", ev.Kind == discovery.Synced:
		case ev.Kind == discovery.Invalid && ev.Worker.ID == "broken":
			expectRecordError(t, ev.Err, "models")
		default:
			t.Fatalf("unexpected event %s %s %v", ev.Kind, ev.Worker.ID, ev.Err)
		}
	}

	bad := map[string]string{
		"{\"schema\":1,\"id\":\"good\",\"models\":[\"\xff\xfe\"]}": "encoding",
		`{"schema":99,"id":"good"}`:                                "schema",
		`{"schema":`:                                               "json",
		`{"schema":1,"id":"good","models":["m"],"node":{"id":"00000000000000000000000000000001","planes":[{"name":"tcp","endpoints":["0.0.0.0:7000"]}],"wire_min":1,"wire_max":1}}`:  "node.planes.endpoints",
		`{"schema":1,"id":"else","models":["m"],"node":{"id":"00000000000000000000000000000001","planes":[{"name":"tcp","endpoints":["10.0.0.1:7000"]}],"wire_min":1,"wire_max":1}}`: "id",
	}
	for data, field := range bad {
		if e.ReadOnly && field != "schema" && field != "node.planes.endpoints" && field != "encoding" {
			continue // in a file such a record cannot be told from another worker's, or breaks the file
		}
		e.PutRaw(t, "ns", "good", []byte(data))
		ev := v.Next() // nothing but the complaint
		if ev.Kind != discovery.Invalid || ev.Worker.ID != "good" {
			t.Fatalf("event %s %s for %s", ev.Kind, ev.Worker.ID, data)
		}
		expectRecordError(t, ev.Err, field)
	}
	v.Quiet(e.Settle) // the last good one stays: no delete
	w := Worker("good", 1)
	w.MaxRunning = 3
	data, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	e.PutRaw(t, "ns", "good", data)
	v.Expect("put good")
	e.DeleteRaw(t, "ns", "broken") // was never good, so it cannot go
	v.Quiet(e.Settle)
}

func expectRecordError(t *testing.T, err error, field string) {
	t.Helper()
	var re *discovery.RecordError
	if !errors.As(err, &re) {
		t.Fatalf("error %v (%T) is no *RecordError", err, err)
	}
	if re.Field != field || re.Key == "" {
		t.Errorf("RecordError names key %q and field %q, want field %q", re.Key, re.Field, field)
	}
}

func testPrefix(t *testing.T, e RegistryEnv) {
	short, long := Watch(t, e.open(t, "foo")), Watch(t, e.open(t, "foobar"))
	short.Expect("synced")
	long.Expect("synced")
	e.place(t, "foobar", Worker("a", 1))
	long.Expect("put a")
	e.place(t, "foo", Worker("b", 2))
	short.Expect("put b")
	short.Quiet(e.Settle)
}

func testNamespaces(t *testing.T, e RegistryEnv) {
	one, two := Watch(t, e.open(t, "one")), Watch(t, e.open(t, "two"))
	one.Expect("synced")
	two.Expect("synced")
	e.place(t, "one", Worker("a", 1))
	remove := e.place(t, "two", Worker("a", 2)) // the same id, another world
	one.Expect("put a")
	two.Expect("put a")
	if one.Workers["a"].Node.ID == two.Workers["a"].Node.ID {
		t.Error("the namespaces share a record")
	}
	remove()
	two.Expect("delete a")
	one.Quiet(e.Settle)
}

func testWatchContext(t *testing.T, e RegistryEnv) {
	reg := e.open(t, "ns")
	ctx, cancel := context.WithCancelCause(t.Context())
	events, err := reg.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	reason := errors.New("enough")
	cancel(reason)
	expectClosed(t, events, reason)
}

// expectClosed reads to the end of a watch, whose last event must carry reason.
func expectClosed(t *testing.T, events <-chan discovery.Event, reason error) {
	t.Helper()
	limit := time.After(Wait)
	var last discovery.Event
	for {
		select {
		case ev, ok := <-events:
			if ok {
				last = ev
				continue
			}
			if last.Kind != discovery.Closed || !errors.Is(last.Err, reason) {
				t.Errorf("last event is %s with %v, want closed with %v", last.Kind, last.Err, reason)
			}
			return
		case <-limit:
			t.Fatal("the watch did not end")
		}
	}
}

func testCloseEndsWatches(t *testing.T, e RegistryEnv) {
	e.place(t, "ns", Worker("a", 1))
	reg := e.Open(t, "ns")
	events, err := reg.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unread, err := reg.Watch(t.Context()) // nobody reads it: Close must not care
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := reg.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	expectClosed(t, events, discovery.ErrClosed)
	wg.Wait()
	expectClosed(t, unread, discovery.ErrClosed)
	if _, err := reg.Watch(t.Context()); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("Watch after Close: %v", err)
	}
	if !e.ReadOnly {
		if _, err := reg.Register(within(t), Workers("w", 1, 1)); !errors.Is(err, discovery.ErrClosed) {
			t.Errorf("Register after Close: %v", err)
		}
	}
}

func testReadOnly(t *testing.T, e RegistryEnv) {
	if !e.ReadOnly {
		t.Skip("this registry can register")
	}
	if held, err := e.open(t, "ns").Register(within(t), Workers("w", 1, 1)); err == nil || held != nil {
		t.Errorf("Register = %v, %v; want an error", held, err)
	}
}

func testWithdraw(t *testing.T, e RegistryEnv) {
	e.mustRegister(t)
	reg := e.open(t, "ns")
	first := register(t, reg, Worker("a", 1), Worker("b", 1))
	register(t, reg, Worker("c", 1))
	v := Watch(t, reg)
	v.ExpectSet("put a", "put b", "put c")
	v.Expect("synced")
	for range 2 { // idempotent
		if err := first.Withdraw(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	v.ExpectSet("delete a", "delete b")
	v.Quiet(e.Settle)
	register(t, reg, Worker("a", 1)) // and it may come again
	v.Expect("put a")
}

func testRegisterBadInput(t *testing.T, e RegistryEnv) {
	e.mustRegister(t)
	reg := e.open(t, "ns")
	v := Watch(t, reg)
	v.Expect("synced")
	bad := Worker("a", 1)
	bad.Models = nil
	for name, workers := range map[string][]discovery.Worker{
		"no workers": nil, "the same id twice": {Worker("a", 1), Worker("a", 1)}, "one without models": {Worker("b", 1),
			bad},
	} {
		if held, err := reg.Register(within(t), workers); err == nil || held != nil {
			t.Errorf("%s: Register = %v, %v; want an error", name, held, err)
		}
	}
	v.Quiet(e.Settle)
}

func testCloseTakesOut(t *testing.T, e RegistryEnv) {
	e.mustRegister(t)
	reg := e.Open(t, "ns")
	register(t, reg, Worker("a", 1), Worker("b", 1))
	v := Watch(t, e.open(t, "ns"))
	v.ExpectSet("put a", "put b")
	v.Expect("synced")
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	v.ExpectSet("delete a", "delete b")
}

func testCrash(t *testing.T, e RegistryEnv) {
	e.mustRegister(t)
	if e.Crash == nil {
		t.Skip("a crash cannot be made")
	}
	reg := e.Open(t, "ns")
	register(t, reg, Worker("a", 1), Worker("b", 1))
	register(t, e.open(t, "ns"), Worker("c", 2))
	v := Watch(t, e.open(t, "ns"))
	v.ExpectSet("put a", "put b", "put c")
	v.Expect("synced")
	e.Crash(t, reg)
	v.ExpectSet("delete a", "delete b")
	v.Quiet(e.Settle)
}

func testNoGap(t *testing.T, e RegistryEnv) {
	e.mustRegister(t)
	reg := e.open(t, "ns")
	const n = 60
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			if _, err := reg.Register(within(t), []discovery.Worker{Worker(fmt.Sprintf("w%d", i), 1)}); err != nil {
				t.Errorf("w%d: %v", i, err)
			}
		}
	})
	defer wg.Wait()
	var views []*View // watches that begin while workers come
	for range 5 {
		v := Watch(t, reg)
		views = append(views, v)
		v.Next()
	}
	for i, v := range views {
		for len(v.Workers) < n {
			if ev := v.Next(); ev.Kind != discovery.Put && ev.Kind != discovery.Synced {
				t.Fatalf("watch %d: event %s %s", i, ev.Kind, ev.Worker.ID)
			}
		}
	}
}

func testManyWorkers(t *testing.T, e RegistryEnv) {
	e.mustRegister(t)
	const processes, each = 8, 64
	v := Watch(t, e.open(t, "ns"))
	v.Expect("synced")
	begin := time.Now()
	var wg sync.WaitGroup
	for p := range processes {
		reg := e.open(t, "ns")
		wg.Go(func() {
			if _, err := reg.Register(within(t), Workers(fmt.Sprintf("p%d", p), each, p)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	registered := time.Since(begin)
	for len(v.Workers) < processes*each {
		if ev := v.Next(); ev.Kind != discovery.Put {
			t.Fatalf("event %s %s %v", ev.Kind, ev.Worker.ID, ev.Err)
		}
	}
	t.Logf("%d workers of %d processes registered in %s, seen in %s", processes*each, processes, registered,
		time.Since(begin))
	v.Quiet(e.Settle)
}
