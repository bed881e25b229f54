package suite

import (
	"context"
	"os"
	"path/filepath"
	"runtime"

	"github.com/laneway-ai/laneway/bench/children"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
)

// tools are the programs that the parts run.
type tools struct {
	root, bin string
	servers   string // devservers
	self      string
}

// build builds what the parts need into a temporary folder.
func build(ctx context.Context, root, self string, parts []Part, say func(string)) (_ *tools, err error) {
	t := &tools{root: root, self: self}
	if t.bin, err = os.MkdirTemp("", "laneway-suite-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.remove()
		}
	}()
	need := map[string]bool{}
	for _, p := range parts {
		need[p.Program] = true
	}
	if need[cluster] {
		need[frontend], need[mockworker], need[loadgen] = true, true, true
		if t.servers, err = devserver.Build(ctx, say); err != nil {
			return nil, err
		}
	}
	args := []string{"build", "-o", t.bin + string(filepath.Separator)}
	for _, name := range []string{loadgen, cluster, frontend, mockworker} {
		if need[name] {
			args = append(args, "./cmd/"+name)
		}
	}
	if len(args) > 3 {
		if err := children.Go(ctx, root, nil, args...); err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		if p.Dir == "" {
			continue
		}
		if err := children.Go(ctx, root, nil, "test", "-c", "-o", filepath.Join(t.bin, p.Program), "./"+
			p.Dir); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tools) remove() { _ = os.RemoveAll(t.bin) } // a temporary folder

// command is one pass of a part.
func (t *tools) command(p Part, dir string) children.Command {
	c := children.Command{Dir: filepath.Join(t.root, p.Dir), Path: t.self, Args: p.args(dir), Limit: p.limit()}
	if p.Program != self {
		c.Path = filepath.Join(t.bin, p.Program)
		if runtime.GOOS == "windows" && p.Dir == "" {
			c.Path += ".exe"
		}
	}
	if p.Program == cluster {
		c.Args = append(c.Args, "--bin-dir="+t.bin)
		c.Env = []string{devserver.BinaryEnv + "=" + t.servers}
	}
	return c
}
