package serving

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// TestAnswerOverThePlane: what an Answer writes to a responseplane.Writer is what a Decoder reads of the Response, a
// complete one and one that broke.
func TestAnswerOverThePlane(t *testing.T) {
	ctx := t.Context()
	network := memory.NewNetwork(memory.Config{})
	var ids [2]*transport.Identity
	var planes [2]transport.Transport
	for i := range ids {
		var err error
		if ids[i], err = transport.NewIdentity(); err != nil {
			t.Fatal(err)
		}
		planes[i] = network.Transport(ids[i].ID)
		defer planes[i].Close()
	}
	worker, err := responseplane.NewWorker(responseplane.WorkerConfig{Identity: ids[0], Name: "w",
		Transports: planes[:1]})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	if err := worker.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	frontend, err := responseplane.NewFrontend(responseplane.FrontendConfig{Identity: ids[1], Transports: planes[1:]})
	if err != nil {
		t.Fatal(err)
	}
	defer frontend.Close()
	if _, err := frontend.AddPeer(worker.Descriptor()); err != nil {
		t.Fatal(err)
	}
	if err := frontend.AwaitPeer(ctx, ids[0].ID); err != nil {
		t.Fatal(err)
	}

	events := []string{chunk, strings.Replace(chunk, "one", "two", 1), "data: " + strings.Repeat("long ", 2000),
		`data: {"choices":[{"index":0,"finish_reason":"stop"}]}`, "data: [DONE]"}
	for _, broken := range []bool{false, true} {
		resp, err := frontend.Mint(ctx, ids[0].ID, responseplane.MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Close()
		w, err := worker.Attach(resp.Terms())
		if err != nil {
			t.Fatal(err)
		}
		want := events
		if broken {
			want = events[:3]
		}
		a := NewAnswer(w, DialectChat, true)
		err = a.Head(okHead)
		for _, ev := range want {
			_, putErr := a.Event(ctx, []byte(ev))
			err = errors.Join(err, putErr)
		}
		if err = errors.Join(err, a.Complete(ctx)); err != nil {
			t.Fatal(err)
		}
		worker.Flush()

		var d Decoder
		var got []string
		var end error
		for end == nil {
			var batch [][]byte
			batch, end = resp.NextBatch(ctx)
			for _, rec := range batch {
				ev, p, err := d.Append(nil, rec)
				if err != nil || (p.Head != nil) != (len(got) == 0) {
					t.Fatalf("record %d: %+v, %v", len(got), p, err)
				}
				got = append(got, string(ev))
			}
		}
		if !reflect.DeepEqual(got, want) || d.Ended() == broken {
			t.Errorf("broken %v: got %.300q, ended %v", broken, got, d.Ended())
		}
		if broken {
			var failed *responseplane.Error
			if !errors.As(end, &failed) || failed.Kind != responseplane.EndFailed || failed.Retryable() {
				t.Errorf("the end is %v", end)
			}
			continue
		}
		tr, err := DecodeTrailer(resp.Trailer())
		if end != io.EOF || err != nil || !reflect.DeepEqual(tr.FinishReasons, []string{"stop"}) {
			t.Errorf("the end is %v, its trailer %+v, %v", end, tr, err)
		}
	}
}
