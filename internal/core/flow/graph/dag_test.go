package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// flows parses steps such as "a; b: a; c: a b".
func flows(text string) []flowv1.Flow {
	var out []flowv1.Flow
	for _, step := range strings.Split(text, ";") {
		name, targets, depends := strings.Cut(strings.TrimSpace(step), ":")
		if name == "" {
			continue
		}
		f := flowv1.Flow{Name: name}
		if depends {
			f.DependsOn = &flowv1.DependsOn{Targets: strings.Fields(targets)}
		}
		out = append(out, f)
	}
	return out
}

func TestValidate(t *testing.T) {
	const notDAG = "jobflow Flow is not DAG"
	for _, c := range []struct{ name, in, want string }{
		{"undefined target", "a; b: nosuch", notDAG + ": vertex is not defined: nosuch"},
		{"self", "a: a", notDAG},
		{"cycle of 2", "a: b; b: a", notDAG},
		{"cycle of 3", "a: c; b: a; c: b", notDAG},
		{"cycle behind a start", "s; a: s c; b: a; c: b", notDAG},
		{"undefined target is reported before a cycle", "a: a; b: nosuch", notDAG + ": vertex is not defined: nosuch"},
		{"empty", "", ""},
		{"duplicate names", "a; a; b: a", ""},
		{"of duplicates the last one counts: fine", "a: a; a", ""},
		{"of duplicates the last one counts: a cycle", "a; a: a", notDAG},
		{"linear", "a; b: a; c: b", ""},
		{"diamond", "a; b: a; c: b; d: b; e: c d", ""},
		{"defined later", "b: a; a", ""},
		{"target named twice", "a; b: a a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := Validate(flows(c.in)); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestValidate_ThousandSteps(t *testing.T) {
	var chain strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&chain, "s%d: s%d;", i, i+1)
	}
	if err := Validate(flows(chain.String() + "s1000")); err != nil {
		t.Error(err)
	}
	if err := Validate(flows(chain.String() + "s1000: s0")); err == nil {
		t.Error("a cycle of 1001 is no cycle")
	}
}

func TestAncestorsAndDependents(t *testing.T) {
	diamond := flows("a; b: a; c: b; d: b; e: c d; z")
	for _, c := range []struct {
		name string
		got  map[string]bool
		want string
	}{
		{"all that e depends on", Ancestors(diamond, "e"), "a b c d"},
		{"a depends on nothing", Ancestors(diamond, "a"), ""},
		{"unknown step x", Ancestors(diamond, "x"), ""},
		{"all behind b", Dependents(diamond, "b"), "c d e"},
		{"behind c or d", Dependents(diamond, "c", "d"), "e"},
		{"nothing is behind z", Dependents(diamond, "z"), ""},
		{"the last of one name counts", Ancestors(flows("a; b; c: a; c: b"), "c"), "b"},
		{"a cycle ends", Ancestors(flows("a: b; b: a"), "a"), "a b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(slices.Sorted(maps.Keys(c.got)), " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
