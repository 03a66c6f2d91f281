// Package dag is the graph of a flow's steps: what it must look like, and who stands
// before and behind whom. It is pure.
//
// Of steps that bear the same name the last one counts, as in Volcano's admission.
package dag

import (
	"errors"
	"fmt"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// ErrCycle is a flow some steps of which wait for themselves. Its text is Volcano's
// to the letter (contract §1, Webhook).
var ErrCycle = errors.New("jobflow Flow is not DAG")

// Validate tells why the steps cannot be put in an order: a target that no step
// bears the name of, or a cycle. The texts are Volcano's. No steps, and several of
// one name, are fine.
func Validate(flows []flowv1.Flow) error {
	steps := Distinct(flows)
	waits := map[string]int{}
	for _, s := range steps {
		waits[s.Name] = len(targets(s))
	}
	for _, s := range steps {
		for _, t := range targets(s) {
			if _, defined := waits[t]; !defined {
				return fmt.Errorf("%w: vertex is not defined: %s", ErrCycle, t)
			}
		}
	}
	if len(ordered(steps, waits)) < len(steps) {
		return ErrCycle
	}
	return nil
}

// ordered are the names of the steps that can be put in an order. What is in a
// cycle, or behind one, is not among them. waits has how many targets each has.
func ordered(steps []flowv1.Flow, waits map[string]int) []string {
	behind := followers(steps)
	var out []string
	for _, s := range steps {
		if waits[s.Name] == 0 {
			out = append(out, s.Name)
		}
	}
	for i := 0; i < len(out); i++ {
		for _, next := range behind[out[i]] {
			if waits[next]--; waits[next] == 0 {
				out = append(out, next)
			}
		}
	}
	return out
}

// Distinct are the steps in their order, without those that a later one of the same
// name replaces.
func Distinct(flows []flowv1.Flow) []flowv1.Flow {
	last := make(map[string]int, len(flows))
	for i := range flows {
		last[flows[i].Name] = i
	}
	if len(last) == len(flows) {
		return flows
	}
	out := make([]flowv1.Flow, 0, len(last))
	for i := range flows {
		if last[flows[i].Name] == i {
			out = append(out, flows[i])
		}
	}
	return out
}

// Ancestors are the names of the steps that a step depends on, directly or not. A
// step in a cycle is its own ancestor. Unknown steps have none.
func Ancestors(flows []flowv1.Flow, name string) map[string]bool {
	before := map[string][]string{}
	for _, s := range Distinct(flows) {
		before[s.Name] = targets(s)
	}
	return reachable(before, name)
}

// Dependents are the names of the steps that depend on any of the named ones,
// directly or not.
func Dependents(flows []flowv1.Flow, names ...string) map[string]bool {
	return reachable(followers(Distinct(flows)), names...)
}

// followers are, by name of a step, those that name it as their target, once for each
// time that they do.
func followers(steps []flowv1.Flow) map[string][]string {
	out := make(map[string][]string, len(steps))
	for _, s := range steps {
		for _, t := range targets(s) {
			out[t] = append(out[t], s.Name)
		}
	}
	return out
}

// reachable is everything that edges lead to from the names.
func reachable(edges map[string][]string, names ...string) map[string]bool {
	seen := map[string]bool{}
	for todo := names; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		for _, n := range edges[next] {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return seen
}

func targets(s flowv1.Flow) []string {
	if s.DependsOn == nil {
		return nil
	}
	return s.DependsOn.Targets
}
