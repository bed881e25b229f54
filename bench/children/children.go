// Package children runs other programs with a time limit, keeps what they say, and builds the ones of this repository.
package children

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/cli"
)

// grace is how long a program that was told to end may take.
const grace = 20 * time.Second

// Command is a program to run.
type Command struct {
	Dir            string
	Path           string
	Args           []string
	Env            []string // beside this process's, which goes along without the twins of flags
	Stdout, Stderr io.Writer
	Limit          time.Duration
}

// LimitError says that a program was ended because it took too long.
type LimitError struct{ Limit time.Duration }

func (e *LimitError) Error() string {
	return fmt.Sprintf("it took longer than %s and was ended", e.Limit)
}

// Run runs the program to its end and returns its exit code, -1 when it has none. When ctx ends or the limit is over it is told to end, and it is killed with all
// that it has started when it does not. On Linux it is killed too when this process is.
func Run(ctx context.Context, c Command) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit, &LimitError{c.Limit})
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, c.Stdout, c.Stderr
	cmd.Env = append(cli.WithoutSettings(os.Environ()), c.Env...)
	cmd.WaitDelay = grace
	isolate(cmd)
	runtime.LockOSThread() // the kernel takes the thread that started a child for its parent
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	killRest(cmd)
	if cmd.ProcessState == nil {
		return -1, err
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return cmd.ProcessState.ExitCode(), err
}

// Output is what a short command prints.
func Output(ctx context.Context, dir, path string, args ...string) (string, error) {
	var out, errs strings.Builder
	_, err := Run(ctx, Command{Dir: dir, Path: path, Args: args, Env: []string{"GOWORK=off"}, Stdout: &out, Stderr: &errs, Limit: time.Minute})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// Module is the library's module.
const Module = "github.com/laneway-ai/laneway"

// Root is the checkout that the working directory is in.
func Root(ctx context.Context) (string, error) {
	dir, err := Output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", Module)
	if err != nil {
		return "", fmt.Errorf("the working directory is not in a checkout, start it in bench/: %w", err)
	}
	return dir, nil
}

// buildLimit is for a machine with an empty cache.
const buildLimit = 15 * time.Minute

// Go runs the go command in dir. What it says stands in the error.
func Go(ctx context.Context, dir string, env []string, args ...string) error {
	var out strings.Builder
	_, err := Run(ctx, Command{Dir: dir, Path: "go", Args: args, Env: append([]string{"GOWORK=off"}, env...), Stdout: &out, Stderr: &out, Limit: buildLimit})
	if err != nil && !errors.Is(err, context.Canceled) {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		err = fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-10):], " | "))
	}
	return err
}
