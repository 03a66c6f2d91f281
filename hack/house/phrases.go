package main

import (
	"path"
	"regexp"
	"strings"
)

// The expressions do not match their own source, so that this folder needs no exception.
var (
	tellsWhether   = regexp.MustCompile(`(?i)\b(?:tell(?:s|ing)?|told)[\s/#*>]+whether\b`)
	anonymousActor = regexp.MustCompile(`(?i)(?:no|some)body`)
	allowedNames   = regexp.MustCompile("[\"'`]no(?:body)\\\\?[\"'`]|no(?:body)_some(?:body)|http[.]No(?:Body)") // the Unix account; the figure; net/http
	sectionRef     = regexp.MustCompile(`(?i)contract[\s/#*>]+§|§+\s*\d`)
	sectionTest    = regexp.MustCompile(`\bfunc (?:Test|Benchmark|Fuzz|Example)\w*?(?:_\d+_\d+|S\d+_\d+)\w*|\.Run\("[^"]*?(?:_\d+_\d+|\bS\d+_\d+)[^"]*"`)
	sectionFile    = regexp.MustCompile(`(?:_|\bs)\d+_\d+\w*\.go$`)
)

// notScanned lists text files that phrases are not looked for in, with the reason.
var notScanned = []struct{ pattern, reason string }{
	{"LICENSE", "the text of a licence is not ours"},
	{"go.sum", "checksums"},
	{"go.work.sum", "checksums"},
	{"package-lock.json", "names and checksums of other people's packages"},
	{"hack/words/words.txt", "the list of words to avoid contains them"},
}

// isScanned reports whether phrases are looked for in the file.
func isScanned(name string) bool {
	for _, n := range notScanned {
		if name == n.pattern || path.Base(name) == n.pattern {
			return false
		}
	}
	return true
}

// findPhrase returns where the expression matches in the selected text files. Matches inside
// a match of except are left out; except may be nil.
func findPhrase(t *tree, phrase, except *regexp.Regexp) []offender {
	var found []offender
	for _, f := range t.files {
		if !isScanned(f.path) || !t.isSelected(f.path) {
			continue
		}
		text := f.text
		if except != nil {
			text = except.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(" ", len(s)) })
		}
		for _, at := range phrase.FindAllStringIndex(text, -1) {
			line := 1 + strings.Count(text[:at[0]], "\n")
			found = append(found, offender{f.path, line, getLine(f.text, at[0])})
		}
	}
	return found
}

// getLine returns the line of text that contains the offset, shortened for printing.
func getLine(text string, offset int) string {
	start := strings.LastIndexByte(text[:offset], '\n') + 1
	line, _, _ := strings.Cut(text[start:], "\n")
	if r := []rune(strings.TrimSpace(line)); len(r) > 160 {
		return string(r[:160]) + " ..."
	}
	return strings.TrimSpace(line)
}

func countTellsWhether(t *tree) (any, []offender) {
	found := findPhrase(t, tellsWhether, nil)
	return len(found), found
}

func countAnonymousActors(t *tree) (any, []offender) {
	found := findPhrase(t, anonymousActor, allowedNames)
	return len(found), found
}

func countContractRefs(t *tree) (any, []offender) {
	found := findPhrase(t, sectionRef, nil)
	for _, o := range findPhrase(t, sectionTest, nil) {
		if strings.HasSuffix(o.path, "_test.go") {
			found = append(found, o)
		}
	}
	for _, f := range t.files {
		if t.isSelected(f.path) && sectionFile.MatchString(path.Base(f.path)) {
			found = append(found, offender{f.path, 0, "file is named after a section"})
		}
	}
	return len(found), found
}
