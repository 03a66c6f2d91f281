package main

import (
	"strings"
	"testing"
)

func readRules(t *testing.T) []rule {
	t.Helper()
	rules, err := parseRules(wordList)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestEachRuleFindsItsExample(t *testing.T) {
	rules := readRules(t)
	if len(rules) < 50 {
		t.Fatalf("got %d rules, want the whole list", len(rules))
	}
	for i := range rules {
		r := &rules[i]
		t.Run(r.pattern, func(t *testing.T) {
			if len(findWords([]rule{*r}, "a.md", r.example)) == 0 {
				t.Errorf("does not find %q", r.example)
			}
			if len(findWords([]rule{*r}, "a.md", strings.ToUpper(r.example))) == 0 {
				t.Errorf("does not find %q in capitals", r.example)
			}
		})
	}
}

// A replacement that another rule forbids would send its reader in a circle.
func TestReplacementsAreAllowedWords(t *testing.T) {
	rules := readRules(t)
	for _, r := range rules {
		instead, _, _ := strings.Cut(r.instead, `"`)
		for _, f := range findWords(rules, "a.md", instead) {
			t.Errorf("%s: the replacement %q contains %q", r.pattern, r.instead, f.word)
		}
	}
}

func TestEachRuleIsReachable(t *testing.T) {
	rules := readRules(t)
	for i := range rules {
		found := findWords(rules, "a.md", rules[i].example)
		isFirst := false
		for _, f := range found {
			isFirst = isFirst || f.rule == &rules[i]
		}
		if !isFirst {
			t.Errorf("%s: another rule finds %q first", rules[i].pattern, rules[i].example)
		}
	}
}

func TestParseRules_RefusesOddLines(t *testing.T) {
	for name, list := range map[string]string{
		"no reason":       "a | b | c",
		"two columns":     "== Why.\na | b",
		"bad expression":  "== Why.\n(a | b | c",
		"stray separator": "== Why.\na | b | c | d",
	} {
		if _, err := parseRules(list); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

func TestParseExceptions(t *testing.T) {
	exceptions, err := parseExceptions("# why\n\ndocs/glossary.md | * | lists old words\ninternal/broker | Fences | of a session\n")
	if err != nil || len(exceptions) != 2 {
		t.Fatalf("got %+v and %v", exceptions, err)
	}
	for _, c := range []struct {
		name, word string
		want       bool
	}{
		{"docs/glossary.md", "wish", true},
		{"docs/glossary.md.go", "wish", false},
		{"internal/broker/hub.go", "fences", true},
		{"internal/broker/hub.go", "fence", false},
	} {
		if got := exceptions[0].isAllowed(c.name, c.word) || exceptions[1].isAllowed(c.name, c.word); got != c.want {
			t.Errorf("%s, %s: got %v", c.name, c.word, got)
		}
	}
	if _, err := parseExceptions("a | b"); err == nil {
		t.Error("want an error for a line without a reason")
	}
}

func TestAllowedListIsReadable(t *testing.T) {
	if _, err := parseExceptions(allowedList); err != nil {
		t.Error(err)
	}
}
