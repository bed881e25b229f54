package static

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const interval = 10 * time.Millisecond

// files is a folder with a file of workers for each namespace.
type files struct {
	dir string
	mu  sync.Mutex
	raw map[string]map[string]json.RawMessage
}

func (f *files) path(ns string) string { return filepath.Join(f.dir, ns+".json") }

func (f *files) change(t *testing.T, ns string, how func(map[string]json.RawMessage)) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.raw[ns] == nil {
		f.raw[ns] = make(map[string]json.RawMessage)
	}
	how(f.raw[ns])
	list := []json.RawMessage{}
	var ids []string
	for id := range f.raw[ns] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		list = append(list, f.raw[ns][id])
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.path(ns), string(data))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *Registry {
	t.Helper()
	r, err := New(Config{Path: path, Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestRegistry(t *testing.T) {
	discoverytest.RunRegistry(t, func(t *testing.T) discoverytest.RegistryEnv {
		f := &files{dir: t.TempDir(), raw: make(map[string]map[string]json.RawMessage)}
		for _, ns := range []string{"ns", "one", "two", "foo", "foobar"} {
			f.change(t, ns, func(map[string]json.RawMessage) {})
		}
		return discoverytest.RegistryEnv{
			ReadOnly: true,
			Open:     func(t *testing.T, ns string) discovery.Registry { return open(t, f.path(ns)) },
			PutRaw: func(t *testing.T, ns, id string, data []byte) {
				f.change(t, ns, func(m map[string]json.RawMessage) { m[id] = data })
			},
			DeleteRaw: func(t *testing.T, ns, id string) {
				f.change(t, ns, func(m map[string]json.RawMessage) { delete(m, id) })
			},
		}
	})
}

func record(t *testing.T, id string) string {
	t.Helper()
	data, err := discoverytest.Worker(id, 1).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestBrokenFileKeepsTheLastGoodOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.json")
	v := discoverytest.Watch(t, open(t, path))
	expectInvalid(t, v, "file") // it is not there yet
	v.Expect("synced")
	write(t, path, "["+record(t, "a")+"]")
	v.Expect("put a")

	for text, field := range map[string]string{
		`[{"schema":`: "json", `{}`: "json", `["a"]`: "[0].id", `[{"schema":1}]`: "[0].id", "": "json",
		"[" + record(t, "a") + "," + record(t, "a") + "]": "[1].id",
	} {
		write(t, path, text)
		expectInvalid(t, v, field)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expectInvalid(t, v, "file")
	v.Quiet(5 * interval) // said once; and a is still there
	write(t, path, "["+record(t, "a")+","+record(t, "b")+"]")
	v.Expect("put b")
	write(t, path, "[]")
	v.ExpectSet("delete a", "delete b")
}

func expectInvalid(t *testing.T, v *discoverytest.View, field string) {
	t.Helper()
	ev := v.Next()
	var re *discovery.RecordError
	if ev.Kind != discovery.Invalid || ev.Worker.ID != "" || !errors.As(ev.Err, &re) || re.Field != field ||
		!strings.Contains(re.Key, "workers.json") {
		t.Errorf("event %s %q with %v, want invalid because of %s", ev.Kind, ev.Worker.ID, ev.Err, field)
	}
}

// TestChangeWithinOneStepOfTheClock: the same size and the same time must not hide a change.
func TestChangeWithinOneStepOfTheClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.json")
	write(t, path, "["+record(t, "a")+"]")
	v := discoverytest.Watch(t, open(t, path))
	v.Expect("put a", "synced")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // in place: the same file too
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("[" + record(t, "b") + "]"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Chtimes(path, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	v.ExpectSet("put b", "delete a")
}

func TestRegisterSaysReadOnly(t *testing.T) {
	r := open(t, "workers.json")
	if _, err := r.Register(t.Context(), discoverytest.Workers("w", 1, 1)); !errors.Is(err, ErrReadOnly) ||
		!strings.Contains(err.Error(), "workers.json") {
		t.Errorf("err = %v", err)
	}
	if _, err := New(Config{Interval: time.Nanosecond}); err == nil || !strings.Contains(err.Error(), "no file") ||
		!strings.Contains(err.Error(), "1ns") {
		t.Errorf("err = %v, want both complaints", err)
	}
}
