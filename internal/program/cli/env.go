package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// envPrefix begins the environment twin of every flag.
const envPrefix = "LANEWAY_"

// EnvName is the environment twin of a flag: udp-recv-buffer is LANEWAY_UDP_RECV_BUFFER.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// WithoutSettings is env without the twins of flags. A program that starts others gives them this, and their settings
// as flags, so that a variable meant for itself neither reaches nor puzzles them.
func WithoutSettings(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, envPrefix) })
}

// parseEnv sets the flags that the command line left alone.
func (a *App) parseEnv() []error {
	var errs []error
	vars := a.variables()
	a.each(func(o *option) {
		name := EnvName(o.name)
		value := vars[name]
		if value == "" || a.sources[o.name] == FromFlag {
			return
		}
		if o.reset != nil {
			o.reset()
		}
		a.sources[o.name] = FromEnv
		if err := o.take(name, value); err != nil {
			errs = append(errs, err)
		}
	})
	return errs
}

// variables are those with our prefix; the last of equal names counts, as in os/exec.
func (a *App) variables() map[string]string {
	vars := make(map[string]string)
	for _, kv := range a.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, envPrefix) {
			vars[k] = v
		}
	}
	return vars
}

// warnUnknownEnv names the variables that set nothing in this program: a misspelt setting must not pass in silence. It
// is only a warning, because others may use the prefix; and those that another program of the suite has are not even
// that, since one environment may serve them all.
func (a *App) warnUnknownEnv(log *slog.Logger) {
	for _, u := range a.unknownEnv() {
		if slices.Contains(suite, u.name) {
			continue
		}
		args := []any{"variable", u.name}
		if u.near != "" {
			args = append(args, "did_you_mean", u.near)
		}
		log.Warn("environment variable sets nothing in "+a.root().name, args...)
	}
}

// strict joins err, of Parse, with a complaint about each variable that sets nothing: who checks a deployment wrote
// them all for this program.
func (a *App) strict(err error) error {
	var errs []error
	if usage, ok := errors.AsType[*UsageError](err); ok {
		errs = append(errs, usage.Err)
	}
	for _, u := range a.unknownEnv() {
		errs = append(errs, &FlagError{Where: u.name, Err: fmt.Errorf("sets nothing in %s%s", a.root().name,
			didYouMean(u.near))})
	}
	err = errors.Join(errs...)
	if err == nil {
		return nil
	}
	return &UsageError{Name: a.Name(), Err: err}
}

// unknown is a variable with our prefix that sets nothing, and the nearest that does.
type unknown struct{ name, near string }

func (a *App) root() *App {
	root := a
	for root.parent != nil {
		root = root.parent
	}
	return root
}

func (a *App) unknownEnv() []unknown {
	root := a.root()
	known := make(map[string]bool)
	for _, app := range append([]*App{root}, root.commands...) {
		app.each(func(o *option) { known[EnvName(o.name)] = true })
	}
	var names []string // without the prefix, which says nothing about how near two are
	for _, name := range slices.Sorted(maps.Keys(known)) {
		names = append(names, strings.TrimPrefix(name, envPrefix))
	}
	var out []unknown
	for _, name := range slices.Sorted(maps.Keys(a.variables())) {
		if known[name] {
			continue
		}
		u := unknown{name: name}
		if !slices.Contains(suite, name) { // else it is no misspelling
			if near := nearest(strings.TrimPrefix(name, envPrefix), names); near != "" {
				u.near = envPrefix + near
			}
		}
		out = append(out, u)
	}
	return out
}
