package main

import (
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/hack/internal/checkout"
)

// skipped lists files that are not checked, with the reason.
var skipped = []struct{ path, reason string }{
	{"charts/k8s4r/files", "copied from config by make generate"},
	{"config/crd", "made from the Go types by make generate"},
	{"docs/reference/console-openapi.json", "made from the Go types by make generate"},
	{"web/src/api.gen.ts", "made from the document of the console's API"},
	{"hack/words", "is about these words"},
}

// wholeText are the endings and names of files that are checked as they are.
var wholeText = []string{".ts", ".tsx", ".mjs", ".html", ".css", ".yaml", ".yml", ".tpl", ".txt", ".sql", ".sh", ".service", ".Containerfile", "Makefile"}

// extractProse returns the text of a file that is meant for readers, byte for byte at its
// place: what else the file holds is blank. It returns an empty string for a file that is
// not checked.
func extractProse(name, content string) string {
	isSkipped := slices.ContainsFunc(skipped, func(s struct{ path, reason string }) bool {
		return checkout.IsBelow(name, []string{s.path})
	})
	switch ending := path.Ext(name); {
	case isSkipped || slices.Contains(strings.Split(name, "/"), "testdata") || !checkout.IsText(content):
		return ""
	case ending == ".go" && !checkout.IsGeneratedGo(name, content):
		return extractGoProse(content)
	case ending == ".md":
		return extractPageProse(content)
	case slices.Contains(wholeText, ending), path.Base(name) == "Makefile", strings.HasPrefix(content, "#!"):
		return content
	}
	return ""
}

// extractPageProse blanks code in Markdown.
func extractPageProse(content string) string {
	var b strings.Builder
	kept := checkout.BlankFences(content)
	for i, line := range strings.Split(content, "\n") {
		if kept[i] == "" {
			line = checkout.BlankText(line)
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return checkout.BlankCodeSpans(strings.TrimSuffix(b.String(), "\n"))
}

// boundary stands for code between two texts, so that no phrase reaches from one to the next.
const boundary = "\x00"

// camelCase matches strings such as reasons, which users see although they are one word.
var camelCase = regexp.MustCompile("^[\"`][A-Z][a-z]+[A-Za-z]*[\"`]$")

// extractGoProse keeps comments, and string literals that are text.
func extractGoProse(content string) string {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(content))
	var s scanner.Scanner
	s.Init(file, []byte(content), nil, scanner.ScanComments)
	var b strings.Builder
	done := 0
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			break
		}
		offset := file.Offset(pos)
		b.WriteString(checkout.BlankText(content[done:offset]))
		// The literal may lack carriage returns that the content has.
		end := min(offset+max(len(literal), 1), len(content))
		text := content[offset:end]
		switch {
		case kind == token.COMMENT:
			b.WriteString(checkout.BlankCodeSpans(text))
		case kind == token.STRING && (strings.Contains(text, " ") || camelCase.MatchString(text)):
			b.WriteString(text)
		case text == "\n": // a semicolon that the scanner has put in
			b.WriteString(text)
		default:
			b.WriteString(boundary + checkout.BlankText(text[1:]))
		}
		done = end
	}
	return b.String()
}
