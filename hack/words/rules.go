package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/hack/internal/checkout"
)

//go:embed words.txt
var wordList string

//go:embed allowed.txt
var allowedList string

// rule is one word or phrase to avoid.
type rule struct {
	pattern string // as in words.txt
	instead string
	example string // text that the rule must find
	reason  string
	match   *regexp.Regexp
	stems   []string // in lower case; each match starts with one of them
}

// exception is a place where a word is right.
type exception struct {
	path, word, reason string
}

// gap is what may stand between the words of a phrase: a space, or a line break with the mark
// of a comment.
const gap = `(?:[ \t]+|[ \t]*\r?\n[ \t/#*>]*)`

// parseRules reads the format of words.txt.
func parseRules(list string) ([]rule, error) {
	var rules []rule
	reason := ""
	for number, line := range splitList(list) {
		if after, ok := strings.CutPrefix(line, "== "); ok {
			reason = after
			continue
		}
		columns := strings.Split(line, " | ")
		if len(columns) != 3 || reason == "" {
			return nil, fmt.Errorf("words.txt:%d: want pattern | instead | example, below a line with ==", number)
		}
		r := rule{pattern: columns[0], instead: columns[1], example: columns[2], reason: reason}
		if err := r.compile(); err != nil {
			return nil, fmt.Errorf("words.txt:%d: %w", number, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// compile sets what is derived from the pattern.
func (r *rule) compile() (err error) {
	expression := strings.ReplaceAll(r.pattern, " ", gap)
	if r.match, err = regexp.Compile(`(?i)\b(?:` + expression + `)\b`); err != nil {
		return err
	}
	parsed, err := syntax.Parse(strings.ToLower(r.pattern), syntax.Perl)
	if err != nil {
		return err
	}
	alternatives := []*syntax.Regexp{parsed}
	if parsed.Op == syntax.OpAlternate {
		alternatives = parsed.Sub
	}
	for _, a := range alternatives {
		one, err := regexp.Compile(a.String())
		if err != nil {
			return err
		}
		stem, _ := one.LiteralPrefix()
		stem, _, _ = strings.Cut(stem, " ")
		r.stems = append(r.stems, stem)
	}
	return nil
}

// canMatch reports whether the rule may match in a text, given in lower case. Most files
// contain few of the words, and this is a tenth of the time that the expression needs.
func (r *rule) canMatch(lower string) bool {
	return slices.ContainsFunc(r.stems, func(stem string) bool { return strings.Contains(lower, stem) })
}

// parseExceptions reads the format of allowed.txt.
func parseExceptions(list string) ([]exception, error) {
	var exceptions []exception
	for number, line := range splitList(list) {
		columns := strings.Split(line, " | ")
		if len(columns) != 3 {
			return nil, fmt.Errorf("allowed.txt:%d: want path | word | reason", number)
		}
		exceptions = append(exceptions, exception{columns[0], columns[1], columns[2]})
	}
	return exceptions, nil
}

// splitList returns the lines of a list by their number, without empty lines and comments.
func splitList(list string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for i, line := range strings.Split(list, "\n") {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			if !yield(i+1, line) {
				return
			}
		}
	}
}

// isAllowed reports whether the exception covers the word in the file.
func (e exception) isAllowed(name, word string) bool {
	return checkout.IsBelow(name, []string{e.path}) && (e.word == "*" || strings.EqualFold(e.word, word))
}
