package arch

import (
	"fmt"
	"slices"
	"strings"
)

// pkg is what `go list -json` says about a package, as far as the rules look at it.
type pkg struct {
	ImportPath, Dir, Doc string
	GoFiles              []string
	IgnoredGoFiles       []string // files for other systems
	Imports              []string
	TestImports          []string
	XTestImports         []string
	Deps                 []string
}

// ruleFor finds the line of the table that holds for a package.
func ruleFor(path string) (rule, bool) {
	var best rule
	found := false
	for _, r := range table {
		if covers(r.path, path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// covers says whether a pattern of the table covers a path.
func covers(pattern, path string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return pattern == path
}

// under says whether path is prefix or below it; a prefix that ends in a slash covers what begins with it.
func under(prefix, path string) bool {
	return path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
}

// checkImports returns one line for every import that breaks a rule.
func checkImports(p pkg) []string {
	self, inModule := relative(p.ImportPath)
	if !inModule {
		return []string{p.ImportPath + " is not a package of this module"}
	}
	r, ok := ruleFor(self)
	if !ok {
		return []string{fmt.Sprintf("%s: no line of the table in internal/test/arch/rules.go covers this package: "+
			"give it a place", self)}
	}
	var out []string
	for _, imp := range p.Imports {
		if reason := refuse(self, r, imp); reason != "" {
			out = append(out, fmt.Sprintf("%s imports %s: %s", self, imp, reason))
		}
	}
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		rel, ours := relative(imp)
		if !ours || rel == self || anyCovers(testOnly, rel) {
			continue // tests may use the standard library and every module that go.mod requires
		}
		if reason := refuse(self, r, imp); reason != "" {
			out = append(out, fmt.Sprintf("%s imports %s in its tests: %s", self, imp, reason))
		}
	}
	return out
}

// refuse says why a package under r may not import imp, "" when it may.
func refuse(self string, r rule, imp string) string {
	for _, b := range banned {
		if slices.Contains(b.kinds, r.kind) && (imp == b.path || b.subtree && under(b.path, imp)) {
			return b.reason
		}
	}
	if rel, ours := relative(imp); ours {
		if r.kind == command && strings.HasPrefix(rel, "cmd/") {
			if sameCommand(self, rel) {
				return ""
			}
			return r.why
		}
		if anyCovers(r.imports, rel) || strings.HasSuffix(r.path, "/...") && covers(r.path, rel) {
			return ""
		}
		return fmt.Sprintf("it may import %s; %s", listOr(r.imports, "no package of this module"), r.why)
	}
	if standard(imp) {
		return ""
	}
	for _, m := range r.modules {
		if m == anyModule || imp == m || strings.HasPrefix(imp, strings.TrimSuffix(m, "/")+"/") {
			return ""
		}
	}
	return fmt.Sprintf("of other modules it may import %s; %s", listOr(r.modules, "none"), r.why)
}

// sameCommand says whether two paths are below the same cmd/NAME.
func sameCommand(a, b string) bool {
	name := func(s string) string {
		n, _, _ := strings.Cut(strings.TrimPrefix(s, "cmd/"), "/")
		return n
	}
	return name(a) == name(b)
}

// checkLean returns a line for everything heavy that a lean package pulls in, however far down.
func checkLean(p pkg) []string {
	self, _ := relative(p.ImportPath)
	if !slices.Contains(lean, self) {
		return nil
	}
	var out []string
	for _, d := range p.Deps {
		if slices.Contains(leanBans, d) {
			out = append(out,
				fmt.Sprintf("%s pulls in %s (see `go mod why %s`): an inference frontend that embeds it would have "+
					"to carry that", self, d, d))
		}
	}
	return out
}

// relative is a path of this module without the module.
func relative(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// standard says whether a package is part of the standard library: its path's first part has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func anyCovers(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, path) })
}

func listOr(items []string, none string) string {
	if len(items) == 0 {
		return none
	}
	return strings.Join(items, ", ")
}
