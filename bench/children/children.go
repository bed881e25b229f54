// Package children runs other programs with a time limit (childproc.Run), keeps what they say, and builds those of this
// repository.
package children

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// Command is a program to run. Env is beside this process's, which goes along without the twins of flags.
type Command = childproc.Command

// Run runs a program to its end, as childproc.Run does.
func Run(ctx context.Context, c Command) (code int, err error) {
	c.Env = append(cli.WithoutSettings(os.Environ()), c.Env...)
	return childproc.Run(ctx, c)
}

// Output is what a short command prints.
func Output(ctx context.Context, dir, path string, args ...string) (string, error) {
	var out, errs strings.Builder
	_, err := Run(ctx, Command{Dir: dir, Path: path, Args: args, Env: []string{"GOWORK=off"}, Stdout: &out,
		Stderr: &errs, Limit: time.Minute})
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
	_, err := Run(ctx, Command{Dir: dir, Path: "go", Args: args, Env: append([]string{"GOWORK=off"}, env...),
		Stdout: &out, Stderr: &out, Limit: buildLimit})
	if err != nil && !errors.Is(err, context.Canceled) {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		err = fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-10):],
			" | "))
	}
	return err
}
