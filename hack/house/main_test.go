package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPrintFigures_LastLineIsJSON(t *testing.T) {
	tree := newTree(map[string]string{"a.go": "package a\n\nfunc run() {}\n"})
	var out strings.Builder
	isOver, err := printFigures(&out, tree, listFigures(nil), true)
	if err != nil {
		t.Fatal(err)
	}
	if !isOver {
		t.Error("a share of 1 must be over its limit")
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	var figures map[string]float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &figures); err != nil {
		t.Fatal(err)
	}
	if len(figures) != 12 || figures["one_word_function_names"] != 1 || figures["function_lines_max"] != 1 {
		t.Errorf("got %v", figures)
	}
	if !strings.HasPrefix(out.String(), "# one_word_function_names\na.go:3: run\n") {
		t.Errorf("no offenders in:\n%s", out.String())
	}
}

func TestSelectFigures(t *testing.T) {
	got, err := selectFigures(listFigures(nil), "max_doc_line,tells_whether")
	if err != nil || len(got) != 2 || got[0].key != "max_doc_line" {
		t.Errorf("got %d figures and %v", len(got), err)
	}
	if _, err := selectFigures(listFigures(nil), "odd"); err == nil {
		t.Error("an unknown key must be an error")
	}
}

func TestParseOptions(t *testing.T) {
	o, err := parseOptions([]string{"-v", "-only", "tells_whether", "./docs/", "internal/cli/...", "."}, nil)
	if err != nil || !o.verbose || o.only != "tells_whether" || strings.Join(o.paths, " ") != "docs internal/cli" {
		t.Errorf("got %+v and %v", o, err)
	}
}

func TestRunHouse_UnknownFigure(t *testing.T) {
	var out, errs strings.Builder
	if code := runHouse([]string{"-only", "odd"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), `no figure "odd"`) {
		t.Errorf("got code %d: %s", code, errs.String())
	}
}
