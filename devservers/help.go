package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

const usage = `devservers: a real etcd or a real NATS server, for a cluster on one machine and for tests; no way to run them in production

Usage:
  devservers etcd [flags]
  devservers nats [flags]
  devservers etcd --help    lists the flags of etcd; nats likewise
  devservers --version

When the server takes clients, one line of JSON on standard output says where. It ends on SIGTERM, SIGINT and SIGHUP, and when its
standard input is a pipe that closes. Exit codes: 0 ended as told, 1 failure, 3 the address is in use.
`

func printHelp(w io.Writer) error {
	_, err := io.WriteString(w, usage)
	return err
}

// printVersion names the servers too: they are what a bug report is about.
func printVersion(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		_, err := fmt.Fprintln(w, "devservers: no version was recorded")
		return err
	}
	version, revision := info.Main.Version, "not recorded"
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	line := fmt.Sprintf("devservers %s, revision %s, %s", version, revision, info.GoVersion)
	for _, d := range info.Deps {
		switch d.Path {
		case "go.etcd.io/etcd/server/v3":
			line += ", etcd " + d.Version
		case "github.com/nats-io/nats-server/v2":
			line += ", NATS " + d.Version
		}
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// said is the exit code after help or version.
func said(err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "devservers: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// helpError says that the flags of a server were asked for.
type helpError struct{ flags *flag.FlagSet }

func (e *helpError) Error() string { return flag.ErrHelp.Error() }

func (e *helpError) print(w io.Writer) error {
	var text bytes.Buffer
	e.flags.SetOutput(&text)
	fmt.Fprintf(&text, "Usage of %s:\n", e.flags.Name())
	e.flags.PrintDefaults()
	_, err := w.Write(text.Bytes())
	return err
}

// parse reads the flags of a server. What is wrong is said once, by the caller.
func parse(fs *flag.FlagSet, args []string) error {
	fs.SetOutput(io.Discard)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return &helpError{fs}
	case err != nil:
		return fmt.Errorf("%w (%s --help)", err, fs.Name())
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}
