package main

import (
	"strings"
	"testing"
)

func TestCountDeadLinks(t *testing.T) {
	page := strings.Join([]string{
		"# The house", // 1
		"[a](other.md), [b](other.md#fields-of-a-task)",              // 2
		"[c](#the-house) and [a wrapped",                             // 3
		"text](../README.md \"title\")",                              // 4
		"[web](https://example.com/x#y) <a href=\"../img/a.png\">",   // 5
		"![image](../img/a.png) [folder](../img) [line](../a.go#L3)", // 6
		"[ref][r] `[code](missing1.md)` [root](/docs/other.md)",      // 7
		"[r]: other.md#twice-1",                                      // 8
		"```", "[code](missing2.md)", "```",                          // 9 to 11
		"[d](missing.md)",                     // 12
		"[e](other.md#missing) [f](#missing)", // 13
		"[![badge](missing.svg)](other.md)",   // 14
		"[g][undefined]",                      // 15
		"[h](../../outside.md)",               // 16
	}, "\n")
	tree := newTree(map[string]string{
		"docs/page.md":       page,
		"docs/other.md":      "Fields of a *Task*\n---\n\n## Twice\n## Twice ##\n",
		"docs/testdata/x.md": "[dead](nowhere.md)",
		"README.md":          "", "img/a.png": "\x00", "a.go": "package a\n",
	})
	got, offenders := countDeadLinks(tree)
	checkFigure(t, got, 6, offenders,
		"docs/page.md:12: missing.md: no file docs/missing.md",
		"docs/page.md:13: other.md#missing: no heading #missing in docs/other.md",
		"docs/page.md:13: #missing: no heading #missing in docs/page.md",
		"docs/page.md:14: missing.svg: no file docs/missing.svg",
		"docs/page.md:16: ../../outside.md: no file ../outside.md",
		"docs/page.md:15: undefined reference undefined: no definition on this page")
}

func TestMakeSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"The house":                   "the-house",
		"`spec.taskGroups[0].count`":  "spectaskgroups0count",
		"What's new in 1.2?":          "whats-new-in-12",
		"A & B":                       "a--b",
		"See [the page](other.md)":    "see-the-page",
		"snake_case and kebab-case":   "snake_case-and-kebab-case",
		"*Über* <a id=\"x\"></a>Maße": "über-maße",
	} {
		if got := makeSlug(heading); got != want {
			t.Errorf("makeSlug(%q) = %q, want %q", heading, got, want)
		}
	}
}

func TestCollectAnchors(t *testing.T) {
	got := collectAnchors("# One\n\n# One\n<a id=\"here\"></a>\n```\n# no heading\n```\n")
	if len(got) != 3 || !got["one"] || !got["one-1"] || !got["here"] {
		t.Errorf("got %v", got)
	}
}

func TestMeasureDocLines(t *testing.T) {
	long := strings.Repeat("x", 200)
	tree := newTree(map[string]string{
		"docs/a.md": strings.Join([]string{
			"| " + long + " |", "```", long, "```", "- [link](" + long + ")", "<https://" + long + ">", "[r]: https://" + long,
			strings.Repeat("ü", 20), "see [link](12345678) there",
		}, "\n"),
	})
	got, offenders := measureDocLines(20)(tree)
	checkFigure(t, got, 26, offenders, "docs/a.md:9: 26 characters")
}
