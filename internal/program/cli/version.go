package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Build says what a program was built from.
type Build struct {
	Version  string // of the main module; "(devel)" when it was built from a working tree
	Revision string // of the repository, "" when the build did not record one (go run does not)
	Modified bool   // the working tree had changes
	Go       string // Go version
}

// revision is set by -ldflags "-X github.com/laneway-ai/laneway/internal/program/cli.revision=..." where the build has
// sources but no repository, as in a container image's.
var revision string

// BuildInfo reads what the linker recorded about this program.
func BuildInfo() Build {
	b := Build{Version: "unknown", Revision: revision, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	b.Go = info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func writeVersion(w io.Writer, name string) {
	b := BuildInfo()
	revision := b.Revision
	if revision == "" {
		revision = "not recorded"
	}
	if b.Modified {
		revision += " with changes"
	}
	fmt.Fprintf(w, "%s %s, revision %s, %s %s/%s\n", name, b.Version, revision, b.Go, runtime.GOOS, runtime.GOARCH)
}
