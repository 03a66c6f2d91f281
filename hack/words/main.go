package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/hack/internal/checkout"
)

// finding is one place where a word is found that a rule replaces.
type finding struct {
	path string
	line int
	word string
	rule *rule
	// offset in the file, by which findings are ordered.
	offset int
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s. %s", f.path, f.line, f.word, f.rule.instead, f.rule.reason)
}

func main() { os.Exit(runWords(os.Args[1:], os.Stdout, os.Stderr)) }

// runWords checks the checkout around the working directory and returns the exit code: 1 if
// it finds a word, 2 if it cannot be checked.
func runWords(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("words", flag.ContinueOnError)
	flags.SetOutput(stderr)
	summary := flags.Bool("summary", false, "print one line for each rule instead of each place")
	if flags.Parse(args) != nil {
		return 2
	}
	findings, unused, err := checkFiles(checkout.CleanPrefixes(flags.Args()))
	if err != nil {
		fmt.Fprintln(stderr, "words:", err)
		return 2
	}
	if *summary {
		printSummary(stdout, findings)
	} else {
		for _, f := range findings {
			fmt.Fprintln(stdout, f)
		}
	}
	for _, e := range unused {
		fmt.Fprintf(stdout, "hack/words/allowed.txt: %s | %s: matches nothing, remove it\n", e.path, e.word)
	}
	fmt.Fprintf(stdout, "%d words to replace\n", len(findings))
	if len(findings)+len(unused) > 0 {
		return 1
	}
	return 0
}

// checkFiles returns the findings below the paths, and the exceptions that were not needed.
// The latter are known only if all files are checked.
func checkFiles(paths []string) (findings []finding, unused []exception, err error) {
	rules, err := parseRules(wordList)
	if err != nil {
		return nil, nil, err
	}
	exceptions, err := parseExceptions(allowedList)
	if err != nil {
		return nil, nil, err
	}
	root, err := checkout.FindRoot()
	if err != nil {
		return nil, nil, err
	}
	files, err := checkout.ReadFiles(root)
	if err != nil {
		return nil, nil, err
	}
	used := map[exception]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !checkout.IsBelow(name, paths) {
			continue
		}
		for _, f := range findWords(rules, name, extractProse(name, files[name])) {
			i := slices.IndexFunc(exceptions, func(e exception) bool { return e.isAllowed(name, f.word) })
			if i < 0 {
				findings = append(findings, f)
			} else {
				used[exceptions[i]] = true
			}
		}
	}
	if len(paths) == 0 {
		unused = slices.DeleteFunc(exceptions, func(e exception) bool { return used[e] })
	}
	return findings, unused, nil
}

// unixAccount is the one use of its name that has no replacement. make house counts that
// name everywhere, so it is not spelled out here.
var unixAccount = regexp.MustCompile("[\"'`]no(?:body)\\\\?[\"'`]")

// findWords returns what the rules find in the prose of a file, in its order. A place is found by
// the first rule that matches it.
func findWords(rules []rule, name, prose string) []finding {
	var findings []finding
	rest := []byte(unixAccount.ReplaceAllStringFunc(prose, checkout.BlankText))
	lower := strings.ToLower(prose)
	for i := range rules {
		if !rules[i].canMatch(lower) {
			continue
		}
		for _, at := range rules[i].match.FindAllIndex(rest, -1) {
			word := strings.Join(strings.FieldsFunc(prose[at[0]:at[1]], isGap), " ")
			line := 1 + strings.Count(prose[:at[0]], "\n")
			findings = append(findings, finding{name, line, word, &rules[i], at[0]})
			for j := at[0]; j < at[1]; j++ {
				if rest[j] != '\n' {
					rest[j] = 0
				}
			}
		}
	}
	slices.SortStableFunc(findings, func(a, b finding) int { return cmp.Compare(a.offset, b.offset) })
	return findings
}

// isGap reports whether r may stand between the words of a phrase.
func isGap(r rune) bool { return strings.ContainsRune(" \t\r\n/#*>", r) }

func printSummary(w io.Writer, findings []finding) {
	counts := map[*rule]int{}
	for _, f := range findings {
		counts[f.rule]++
	}
	for _, r := range slices.SortedFunc(maps.Keys(counts), func(a, b *rule) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.pattern, b.pattern))
	}) {
		fmt.Fprintf(w, "%5d  %s: write %s\n", counts[r], r.pattern, r.instead)
	}
}
