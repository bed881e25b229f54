package arch

import (
	"bytes"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api.txt anew")

// TestPublicAPI compares the exported names of the packages that others may import with api.txt, so that a change of
// the API is seen in review. go test ./internal/test/arch -update writes it anew; CHANGELOG.md says what to write instead.
func TestPublicAPI(t *testing.T) {
	var out bytes.Buffer
	for _, p := range packages(t) {
		self, ok := relative(p.ImportPath)
		if !ok || strings.Contains("/"+self+"/", "/internal/") || len(p.GoFiles) == 0 {
			continue
		}
		switch strings.Split(self, "/")[0] {
		case "responseplane", "mux", "transport", "discovery":
		default:
			continue
		}
		for _, line := range exported(t, p) {
			out.WriteString(self + ": " + line + "\n")
		}
	}
	file := filepath.Join("..", "..", "..", "api.txt")
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old, now := strings.Split(string(was), "\n"), strings.Split(out.String(), "\n")
	for _, line := range old {
		if !slices.Contains(now, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			t.Errorf("new: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if that is meant: go test ./internal/test/arch -update, and a line in CHANGELOG.md")
	}
}

// exported are the exported declarations of a package, one a line, sorted.
func exported(t *testing.T, p pkg) (lines []string) {
	fset := token.NewFileSet()
	add := func(node any) {
		var b bytes.Buffer
		if err := format.Node(&b, fset, node); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Join(strings.Fields(b.String()), " "))
	}
	for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				d.Body, d.Doc = nil, nil
				add(d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if d.Tok != token.IMPORT {
						add(&ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}})
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
