package cli

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log/slog"
	"os"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Func is what a program or one of its commands does. ctx ends on SIGINT, SIGTERM or SIGHUP (context.Cause is a
// *SignalError).
type Func func(ctx context.Context, log *slog.Logger) error

// App is one program, or one command of a program. It is declared and run from one goroutine.
type App struct {
	// Env is the environment, os.Environ() by default; Stdout gets --help and --version, Stderr errors and the log.
	// They are there for tests; commands take them from their program when it is run.
	Env            []string
	Stdout, Stderr io.Writer

	name, summary string
	parent        *App
	commands      []*App
	groups        []*Group
	flags         *flag.FlagSet
	aliases       map[string]string // short name -> long name
	sources       map[string]Source // flags that were set
	checks, last  []func() error
	argsUsage     string
	args          []string
	action        Func

	help, version, checkConfig *bool
	logFormat, logLevel        *string

	notify func(chan<- os.Signal) (stop func()) // replaced by tests
	exit   func(int)                            // what a second signal calls; replaced by tests
}

// New declares a program: its name and one line that says what it is.
func New(name, summary string) *App {
	a := &App{
		Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr,
		notify: notify,
		exit:   os.Exit,
	}
	a.init(name, summary)
	return a
}

func (a *App) init(name, summary string) {
	a.name, a.summary = name, summary
	a.flags = flag.NewFlagSet(name, flag.ContinueOnError)
	a.aliases = make(map[string]string)
	a.sources = make(map[string]Source)
	g := &Group{app: a, title: "General"}
	a.groups = append(a.groups, g)
	a.logFormat = g.Enum("log-format", "text", []string{"text", "json"},
		"how log lines look; they go to standard error")
	a.logLevel = g.Enum("log-level", "info", []string{"debug", "info", "warn", "error"},
		"the least important lines that are logged")
	a.help = g.Bool("help", false, "print this text and exit")
	a.version = g.Bool("version", false, "print module version, revision and Go version, and exit")
	a.checkConfig = g.Bool(checkConfigFlag, false,
		"check flags and environment without doing anything, and exit: 0 when they are good, 1 with every complaint; "+
			"a LANEWAY_ variable that sets nothing is a complaint too")
	a.Alias("h", "help")
}

// Command declares a sub-command with flags of its own: `loadgen plane`. Its function is given with Handle.
func (a *App) Command(name, summary string) *App {
	c := &App{parent: a}
	c.init(name, summary)
	a.commands = append(a.commands, c)
	return c
}

// Handle sets what the program or command does. Run's function is the same thing for the program itself.
func (a *App) Handle(f Func) { a.action = f }

// Name is the program's name, with the command's after it: "loadgen plane".
func (a *App) Name() string {
	if a.parent != nil {
		return a.parent.Name() + " " + a.name
	}
	return a.name
}

// Group starts, or goes on with, a named group of flags. Groups stand in --help in the order of their first mention.
func (a *App) Group(title string) *Group {
	for _, g := range a.groups {
		if g.title == title {
			return g
		}
	}
	g := &Group{app: a, title: title}
	a.groups = append(a.groups, g)
	return g
}

// Alias gives a flag a short name: Alias("c", "concurrency") makes -c. Short names have no environment twin.
func (a *App) Alias(short, long string) {
	if a.flags.Lookup(long) == nil {
		panic("cli: alias for the undeclared flag --" + long)
	}
	if a.flags.Lookup(short) != nil || a.aliases[short] != "" {
		panic("cli: -" + short + " is declared twice")
	}
	a.aliases[short] = long
}

// AllowArgs says that arguments without a dash are welcome, and how help names them: "RUN_DIR...".
func (a *App) AllowArgs(usage string) { a.argsUsage = usage }

// Args are the arguments without a dash, in order.
func (a *App) Args() []string { return a.args }

// Check adds a check over several flags. It runs after all flags are set; what it returns is joined with the other
// complaints, so it must not rely on each single flag being valid.
func (a *App) Check(f func() error) { a.checks = append(a.checks, f) }

// CheckLast adds a check that runs only when nothing else is wrong: of the settings as a whole, as the run takes them,
// and of the files that they name. What the run would refuse without having begun belongs here, so that --check-config
// refuses it too.
func (a *App) CheckLast(f func() error) { a.last = append(a.last, f) }

// Run parses args (without the program's name), runs f or the command that args name, and returns the exit code. f may
// be nil when there are commands only.
func (a *App) Run(args []string, f Func) int {
	if f != nil {
		a.action = f
	}
	if len(args) > 0 {
		for _, c := range a.commands {
			if c.name == args[0] {
				c.Env, c.Stdout, c.Stderr, c.notify, c.exit = a.Env, a.Stdout, a.Stderr, a.notify, a.exit
				return c.Run(args[1:], nil)
			}
		}
	}
	err := a.Parse(args)
	switch {
	case *a.help:
		return a.print(a.WriteHelp)
	case *a.version:
		return a.print(func(w io.Writer) { writeVersion(w, a.Name()) })
	case *a.checkConfig:
		return a.report(a.strict(err))
	case err != nil:
		return a.report(err)
	case a.action == nil:
		return a.report(&UsageError{Err: a.needCommand(), Name: a.Name()})
	}
	return a.report(a.do())
}

// print writes a text to standard output, as a whole; text that got lost is a failure.
func (a *App) print(write func(io.Writer)) int {
	var text bytes.Buffer
	write(&text)
	_, err := a.Stdout.Write(text.Bytes())
	return a.report(err)
}

// do runs the action under a context that ends on the first signal.
func (a *App) do() error {
	log := a.logger()
	a.warnUnknownEnv(log)
	if err := RaiseFiles(); err != nil {
		log.Debug("the limit of open files could not be raised", "error", err)
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := a.watchSignals(cancel, log)
	err := a.action(ctx, log)
	stop()
	return interrupted(ctx, err)
}

// logger is what --log-format and --log-level ask for.
func (a *App) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(*a.logLevel)); err != nil {
		level = slog.LevelInfo // cannot be: the flag takes these four names only
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: withoutSecrets}
	if *a.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(a.Stderr, opts))
}

// withoutSecrets hides those of URLs that an error or a text has, whoever made it.
func withoutSecrets(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(redact.Text(v.String()))
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			a.Value = slog.AnyValue(redact.Error(err))
		}
	}
	return a
}
