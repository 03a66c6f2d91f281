package gateway

import (
	"testing"

	"pgregory.net/rapid"
)

// brokenRule is a rule that a model breaks, to show that it would find it.
type brokenRule string

// foundViolation ends the run of a model that breaks a rule.
type foundViolation struct{}

// expectViolations breaks each rule in turn, and runs a model until it violates an invariant.
func expectViolations(t *testing.T, run func(*rapid.T, brokenRule) (violates bool), rules ...brokenRule) {
	t.Helper()
	for _, rule := range rules {
		t.Run(string(rule), func(t *testing.T) {
			expectViolation(t, func(t *rapid.T) bool { return run(t, rule) })
		})
	}
}

// expectViolation runs a model with a broken rule until it violates an invariant.
func expectViolation(t *testing.T, run func(*rapid.T) (violates bool)) {
	t.Helper()
	found := false
	for range 100 { // it ends with the first violation
		rapid.Check(t, func(t *rapid.T) {
			if !found {
				found = run(t)
			}
		})
		if found {
			return
		}
	}
	t.Error("no order of events shows that the rule is broken")
}

// findsViolation reports whether a model with a broken rule violates an invariant while it runs.
func findsViolation(run func()) (violates bool) {
	defer func() {
		if p := recover(); p == (foundViolation{}) {
			violates = true
		} else if p != nil {
			panic(p)
		}
	}()
	run()
	return false
}
