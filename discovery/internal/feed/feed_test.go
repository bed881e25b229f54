package feed

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(t testing.TB, id string, running int) Record {
	t.Helper()
	data, err := discovery.Worker{
		ID: id, Models: []string{"m"}, MaxRunning: running,
		Node: discovery.Node{ID: strings.Repeat("ab", 16),
			Planes: []discovery.Plane{{Name: "tcp", Endpoints: []string{"10.0.0.1:1"}}}, WireMin: 1, WireMax: 1},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Record{Key: "/k/" + id, Data: data}
}

// drain reads what is there now, as short texts. Called in a bubble.
func drain(f *Feed) []string {
	var got []string
	for {
		synctest.Wait()
		select {
		case ev, ok := <-f.Events():
			if !ok {
				return append(got, "end")
			}
			text := ev.Kind.String()
			if ev.Worker.ID != "" {
				text += " " + ev.Worker.ID
			}
			if ev.Kind == discovery.Put {
				text += fmt.Sprintf(" %d", ev.Worker.MaxRunning)
			}
			got = append(got, text)
		default:
			return got
		}
	}
}

func expect(t *testing.T, f *Feed, want ...string) {
	t.Helper()
	if got := drain(f); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Fatalf("events: %q, want %q", got, want)
	}
}

func TestOnlyDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Snapshot(map[string]Record{"b": record(t, "b", 1), "a": record(t, "a", 1)})
		f.Synced()
		expect(t, f, "put a 1", "put b 1", "synced")

		f.Snapshot(map[string]Record{"a": record(t, "a", 1), "b": record(t, "b", 1)})
		expect(t, f)
		f.Snapshot(map[string]Record{"b": record(t, "b", 2), "c": record(t, "c", 1)})
		expect(t, f, "put b 2", "put c 1", "delete a")
		f.Put("c", record(t, "c", 1))
		f.Delete("nobody")
		expect(t, f)

		reason := errors.New("over")
		f.Close(reason)
		f.Close(nil)
		ev := <-f.Events()
		if ev.Kind != discovery.Closed || !errors.Is(ev.Err, reason) {
			t.Errorf("last event = %+v", ev)
		}
		expect(t, f, "end")
	})
}

func TestBrokenRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		defer f.Close(nil)
		bad := Record{Key: "/k/a", Data: []byte("{")}
		f.Put("a", record(t, "a", 1))
		f.Put("n", Record{Key: "/k/n", Data: record(t, "other", 1).Data}) // never good
		expect(t, f, "put a 1", "invalid n")

		f.Put("a", bad)
		expect(t, f, "invalid a")
		f.Snapshot(map[string]Record{"a": bad, "n": {Key: "/k/n", Data: record(t, "other", 1).Data}})
		expect(t, f) // said once, and a is not taken away
		f.Put("a", record(t, "a", 1))
		expect(t, f) // the good one was in force all the time
		f.Put("a", bad)
		synctest.Wait() // the complaint is on its way
		f.Put("a", record(t, "a", 2))
		expect(t, f, "invalid a", "put a 2")

		f.Delete("n")
		expect(t, f)
		f.Put("a", bad)
		expect(t, f, "invalid a")
		f.Delete("a")
		expect(t, f, "delete a")
		f.Put("e", Record{Key: "/k/e", Data: nil})
		expect(t, f, "invalid e")
	})
}

func TestSlowConsumerGetsTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		defer f.Close(nil)
		f.Put("first", record(t, "first", 1))
		f.Put("second", record(t, "second", 1))
		synctest.Wait() // the first is in the channel, the second in the goroutine's hand: both are on their way
		for i := range 100 {
			f.Put("a", record(t, "a", i))
			f.Put("gone", record(t, "gone", i))
			f.Put("second", record(t, "second", i))
		}
		f.Delete("gone")
		f.Delete("second")
		f.mu.Lock()
		waiting := len(f.order)
		f.mu.Unlock()
		if waiting > 3 {
			t.Errorf("%d events wait for 3 workers", waiting)
		}
		expect(t, f, "put first 1", "put second 1", "put a 99", "delete second")
	})
}

func TestCloseDoesNotWaitForTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		for i := range 10 {
			id := fmt.Sprint("w", i)
			f.Put(id, record(t, id, 1))
		}
		synctest.Wait()
		f.Close(discovery.ErrClosed)
		expect(t, f, "closed", "end")
	})
}

// BenchmarkChange is one worker's change among 5,000: its cost must not grow with their number.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{50, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := New()
			defer f.Close(nil)
			now := make(map[string]Record, n)
			for i := range n {
				id := fmt.Sprint("w", i)
				now[id] = record(b, id, 1)
			}
			f.Snapshot(now)
			for range n {
				<-f.Events()
			}
			states := []Record{record(b, "w7", 2), record(b, "w7", 3)}
			i := 0
			for b.Loop() {
				f.Put("w7", states[i%2])
				i++
				<-f.Events()
			}
		})
	}
}
