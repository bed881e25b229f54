package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// CommandError says that ip refused something.
type CommandError struct {
	Args []string
	Text string // what it said
	Err  error
}

func (e *CommandError) Error() string {
	s := "ip " + strings.Join(e.Args, " ") + ": "
	if e.Text != "" {
		s += e.Text + " "
	}
	return s + "(" + e.Err.Error() + ")"
}

func (e *CommandError) Unwrap() error { return e.Err }

// places are where ip is when the PATH of a user lacks it.
var places = []string{"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}

func ipCommand() (string, error) {
	path, err := exec.LookPath("ip")
	if err == nil {
		return path, nil
	}
	for _, p := range places {
		if path, e := exec.LookPath(p); e == nil {
			return path, nil
		}
	}
	return "", &MissingError{What: "the command ip is missing, install iproute2", Err: err}
}

// ip runs one command. lines, when there are any, are its standard input.
func ip(ctx context.Context, lines []string, args ...string) error {
	path, err := ipCommand()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if lines != nil {
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	}
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("ip %s: %w", strings.Join(args, " "), context.Cause(ctx))
	}
	e := &CommandError{Args: args, Text: strings.Join(strings.Fields(out.String()), " "), Err: err}
	if errors.Is(err, exec.ErrNotFound) {
		return &MissingError{What: "the command ip is missing, install iproute2", Err: err}
	}
	return e
}

// IP runs commands of ip in the node's namespace, each as it would stand behind "ip": "link set eth0 mtu 1400". The
// first that fails ends it.
func (d *Node) IP(ctx context.Context, commands ...string) error {
	return ip(ctx, commands, "-n", d.Namespace, "-batch", "-")
}
