package benchtable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func table() Table {
	t := Table{Title: "Rates", Head: []string{"arm", "MB/s"}}
	t.Add("a|b", "1")
	t.Add("é", "23.5", "more than the head has")
	t.Add("c")
	t.Note("%d cores", 2)
	return t
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	if err := Print(&b, table(), Table{Head: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	want := "Rates\n" +
		"arm  MB/s\n" +
		"a|b     1\n" +
		"é    23.5  more than the head has\n" +
		"c\n" +
		"2 cores\n" +
		"\nx\n"
	if b.String() != want {
		t.Errorf("%q, expected %q", b.String(), want)
	}
}

func TestMarkdown(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, table(), Table{Head: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, File))
	want := "**Rates**\n\n| arm | MB/s |\n|---|---|\n| a\\|b | 1 |\n| é | 23.5 |\n| c |  |\n\n- 2 cores\n\n| x " +
		"|\n|---|\n"
	if err != nil || string(b) != want {
		t.Errorf("%v: %q, expected %q", err, b, want)
	}
	if err := Write(filepath.Join(dir, "none")); err == nil {
		t.Error("no error of a folder that is not there")
	}
}
