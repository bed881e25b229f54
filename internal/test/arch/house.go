package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxLines is the length above which a file surely holds more than one concept.
const maxLines = 500

// maxColumns is the length of a line that two windows beside each other can show.
const maxColumns = 120

// matchers are the functions of package strings that a decision about an error could be made with.
var matchers = []string{"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "CutPrefix",
	"CutSuffix", "Cut"}

// flagName finds the name of a flag in a text.
var flagName = regexp.MustCompile(`(^|[^-\w])--[a-z]`)

// checkHouse returns one line for every place in a package that breaks a house rule.
func checkHouse(p pkg) ([]string, error) {
	self, _ := relative(p.ImportPath)
	r, _ := ruleFor(self)
	var out []string
	if len(p.GoFiles) > 0 && strings.TrimSpace(p.Doc) == "" {
		out = append(out, self+": the package has no doc comment")
	}
	for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		found, err := checkFile(r.kind, self+"/"+name, src)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func checkFile(k kind, name string, src []byte) ([]string, error) {
	var out []string
	if n := strings.Count(string(src), "\n"); n > maxLines {
		out = append(out, fmt.Sprintf("%s: %d lines, more than %d: one concept a file", name, n, maxLines))
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	out = append(out, checkWidth(fset, file, name, src)...)
	complain := func(pos token.Pos, text string) {
		out = append(out, fmt.Sprintf("%s:%d: %s", name, fset.Position(pos).Line, text))
	}
	stringsPkg, slogPkg := importName(file, "strings"), importName(file, "log/slog")
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil && (k == library || k == exporter || k == suite) {
				complain(n.Pos(), "func init: library packages have no side effects when they are imported")
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && (k == library || k == exporter || k == suite) &&
				flagName.MatchString(n.Value) {
				complain(n.Pos(), "names a command's flag: a library's texts name the fields of its configs")
			}
		case *ast.CallExpr:
			pkgName, fn := selector(n.Fun)
			// A suite is a test: it may look whether an error's text names what it should.
			if k != suite && stringsPkg != "" && pkgName == stringsPkg && slices.Contains(matchers, fn) &&
				slices.ContainsFunc(n.Args, isErrorText) {
				complain(n.Pos(), "strings."+fn+" on an error's text: use errors.Is or errors.As")
			}
			if slogPkg != "" && pkgName == slogPkg && k == library &&
				slices.Contains([]string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log"}, fn) {
				complain(n.Pos(), "slog."+fn+" uses the global logger: take a *slog.Logger")
			}
		}
		return true
	})
	return out, nil
}

// checkWidth finds lines of more than maxColumns, a tab counted as four. Texts between backquotes are as long as they
// are.
func checkWidth(fset *token.FileSet, file *ast.File, name string, src []byte) (out []string) {
	raw := make(map[int]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(lit.Value, "`") {
			for i := fset.Position(lit.Pos()).Line; i <= fset.Position(lit.End()).Line; i++ {
				raw[i] = true
			}
		}
		return true
	})
	for i, line := range strings.Split(string(src), "\n") {
		n := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if n > maxColumns && !raw[i+1] {
			out = append(out, fmt.Sprintf("%s:%d: %d columns, more than %d", name, i+1, n, maxColumns))
		}
	}
	return out
}

// isErrorText says whether an expression is a call of an Error method without arguments.
func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Error"
}

// selector takes x.Name apart when x is a plain identifier.
func selector(e ast.Expr) (x, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return id.Name, sel.Sel.Name
}

// importName is the name under which a file uses a package, "" when it does not import it.
func importName(f *ast.File, path string) string {
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil || p != path {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}
