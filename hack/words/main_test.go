package main

import (
	"fmt"
	"strings"
	"testing"
)

// account is put together, because make house counts it everywhere.
const account = "no" + "body"

const goFile = `// Package a is no
// more.
package a

import "fmt"

// The field ` + "`wish`" + ` stays.
type wish struct {
	Heir string ` + "`json:\"heir\"`" + `
}

func tally() {
	fmt.Println("the heir waits\n", "heir", "Pretence") // "heirs"
	fmt.Println("it tells", "whether it runs")
}
`

const page = "# A wish\n\nA `wish` is\nfor\never.\n\n```sh\nk8s4r wish\n```\n\nRun as `" + account + "`, or \"" + account + "\", not as " + account + ".\n"

func TestFindWords(t *testing.T) {
	rules := readRules(t)
	for _, c := range []struct{ name, content, want string }{
		{"a.go", goFile, "1 is no more, 13 heir, 13 Pretence, 13 heirs, 14 tells"},
		{"docs/a.md", page, "1 wish, 4 for ever, 11 " + account},
		{"a.yaml", "# A wish that\n# is no\n# more\nwish: x\n", "1 wish, 2 is no more, 4 wish"},
		{"web/a.tsx", "<p>for ever</p>", "1 for ever"},
		{"Makefile", "a: ## written anew\n", "1 anew"},
		{"hack/demo", "#!/bin/sh\necho anew\n", "2 anew"},
		{"bin/data", "anew", ""},
		{"a.txt", "\x00anew", ""},
		{"zz_generated.a.go", "// anew\npackage a\n", ""},
		{"a/testdata/a.md", "anew", ""},
		{"config/crd/a.yaml", "anew", ""},
	} {
		var got []string
		for _, f := range findWords(rules, c.name, extractProse(c.name, c.content)) {
			got = append(got, fmt.Sprint(f.line, " ", f.word))
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s: got %s, want %s", c.name, g, c.want)
		}
	}
}

func TestFindWords_SaysWhatToWrite(t *testing.T) {
	found := findWords(readRules(t), "docs/a.md", "Written anew.")
	if len(found) != 1 || found[0].String() != `docs/a.md:1: "anew": write again. Current English.` {
		t.Errorf("got %v", found)
	}
}

// Line numbers are right only if each text stays at its place.
func TestExtractProse_KeepsPlaces(t *testing.T) {
	for name, content := range map[string]string{"a.go": goFile, "a.md": page, "b.go": "package b\n\n// x\r\nvar a = `\r\nb c`\n"} {
		prose := extractProse(name, content)
		if len(prose) > len(content) || strings.Count(prose, "\n") > strings.Count(content, "\n") {
			t.Errorf("%s: got %d bytes of %d", name, len(prose), len(content))
		}
		at := 0
		for line := range strings.Lines(prose) {
			original := content[at : at+len(line)]
			for i := range line {
				if line[i] != ' ' && line[i] != 0 && line[i] != original[i] {
					t.Fatalf("%s: %q is not at its place in %q", name, line, original)
				}
			}
			at += len(line)
		}
	}
}

func TestPrintSummary(t *testing.T) {
	var out strings.Builder
	printSummary(&out, findWords(readRules(t), "a.md", "anew, anew, for ever"))
	want := "    2  anew: write again\n    1  for ever: write forever\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestSkippedFilesHaveReasons(t *testing.T) {
	for _, s := range skipped {
		if s.reason == "" {
			t.Errorf("%s is skipped without a reason", s.path)
		}
	}
}
