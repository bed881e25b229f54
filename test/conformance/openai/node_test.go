package openai

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// nodeClient is the npm package openai, in a process of its own.
type nodeClient struct {
	in  io.Writer
	out *bufio.Reader
}

// newNodeClient installs what package-lock.json pins into a directory of the test and starts the driver. Without Node
// it skips, in CI it fails.
func newNodeClient(t *testing.T, url string) nodeClient {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v: install Node 20 or later", err)
			}
			t.Skipf("%v: the official Node client is not tested", err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "driver.mjs"} {
		b, err := os.ReadFile(filepath.Join("node", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund",
		"--prefer-offline")
	install.Dir = dir
	install.WaitDelay = 5 * time.Second
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	node := exec.Command("node", "driver.mjs")
	node.Dir, node.Env, node.Stderr = dir, append(os.Environ(), "LANEWAY_URL="+url+"/v1"), os.Stderr
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // it then ends by itself
		late := time.AfterFunc(10*time.Second, func() { _ = node.Process.Kill() })
		defer late.Stop()
		if err := node.Wait(); err != nil {
			t.Errorf("the Node client: %v", err)
		}
	})
	return nodeClient{in: in, out: bufio.NewReader(out)}
}

func (n nodeClient) do(t *testing.T, c call) (s seen) {
	t.Helper()
	b, err := json.Marshal(c)
	if err == nil {
		_, err = n.in.Write(append(b, '\n'))
	}
	var line []byte
	if err == nil {
		line, err = n.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		t.Fatalf("the Node client: %v: %q", err, line)
	}
	return s
}
