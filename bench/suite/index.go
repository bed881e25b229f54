package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of the index.
const (
	IndexFile = "suite.json"
	PageFile  = "suite.md"
)

// most is how many lines of a part's output stand in the page; all of it is in the part's file.
const most = 300

func (ix *Index) write(dir string) error {
	b, err := json.MarshalIndent(ix, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, IndexFile), append(b, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, PageFile), []byte(ix.page(dir)), 0o644))
}

// page is suite.md: the machine, a row for each part, and the tables of each with the command that makes them, as a
// document takes them; where there are none, what it printed.
func (ix *Index) page(dir string) string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("# Benchmark suite of %s\n", ix.Started)
	if ix.Partial != "" {
		line("**Partial**: %s\n", oneLine(ix.Partial))
	}
	if ix.Quick {
		line("**Quick**: it shows that everything runs; the figures are of no use.\n")
	}
	line("- revision: `%s`", ix.Revision.ID)
	for _, c := range ix.Revision.Changes {
		line("  - changed: `%s`", c)
	}
	m := ix.Machine
	line("- machine: %s, kernel %s, %s, %d cores, memory %s", m.OS, m.Kernel, m.CPU, m.Cores, m.Memory)
	line("- Go: %s", m.Go)
	for _, list := range []struct {
		name   string
		values map[string]string
	}{{"kernel settings", m.Settings}, {"environment", m.Env}} {
		if len(list.values) == 0 {
			continue
		}
		line("- %s:", list.name)
		for _, k := range slices.Sorted(maps.Keys(list.values)) {
			line("  - `%s` = `%s`", k, list.values[k])
		}
	}
	line("\n| part | exit code | minutes | expected | load average before | output |\n|---|---|---|---|---|---|")
	for _, r := range ix.Parts {
		line("| [%s](#%s) | %d | %s | %s | %s | [stdout](%s) [stderr](%s) |", r.Name, r.Name, r.ExitCode,
			minutes(r.Seconds/60), minutes(r.Expected), r.LoadBefore, filepath.ToSlash(r.Stdout),
			filepath.ToSlash(r.Stderr))
	}
	for _, r := range ix.Parts {
		line("\n## %s\n\n%s.\n", r.Name, strings.ToUpper(r.What[:1])+r.What[1:])
		if r.Error != "" {
			line("**Failed**, exit code %d: %s", r.ExitCode, oneLine(r.Error))
			quote(&b, filepath.Join(dir, r.Stderr), 20)
		}
		if text, err := os.ReadFile(filepath.Join(dir, r.Tables)); r.Tables != "" && err == nil {
			b.Write(text)
		} else {
			quote(&b, filepath.Join(dir, r.Stdout), most)
		}
		line("\n```\n%s\n```", r.Shell)
	}
	return b.String()
}

// quote writes the last lines of a file, as they are.
func quote(b *strings.Builder, path string, most int) {
	text, err := os.ReadFile(path)
	if err != nil || len(strings.TrimSpace(string(text))) == 0 {
		return // that there is none is in the part's files
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	left := max(0, len(lines)-most)
	if left > 0 {
		fmt.Fprintf(b, "\nThe first %d lines are left out here.\n", left)
	}
	fmt.Fprintf(b, "\n```\n%s\n```\n", strings.Join(lines[left:], "\n"))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
