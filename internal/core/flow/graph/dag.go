// Package graph validates and queries the dependency graph of a flow's steps. Of several
// steps of one name the last one counts, as in Volcano's admission.
package graph

import (
	"errors"
	"fmt"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// ErrCycle is returned for a flow with a dependency cycle. The text is the same as
// Volcano's, word for word.
var ErrCycle = errors.New("jobflow Flow is not DAG")

// Validate returns an error if a target does not exist or if there is a cycle. The texts
// are Volcano's. No steps, and several steps of one name, are valid.
func Validate(flows []flowv1.Flow) error {
	steps := DistinctSteps(flows)
	waits := map[string]int{}
	for _, s := range steps {
		waits[s.Name] = len(targetNames(s))
	}
	for _, s := range steps {
		for _, t := range targetNames(s) {
			if _, defined := waits[t]; !defined {
				return fmt.Errorf("%w: vertex is not defined: %s", ErrCycle, t)
			}
		}
	}
	if len(topologicalOrder(steps, waits)) < len(steps) {
		return ErrCycle
	}
	return nil
}

// topologicalOrder returns the names of the steps that can be sorted, without those in or
// after a cycle. waits holds the number of targets of each step and is modified.
func topologicalOrder(steps []flowv1.Flow, waits map[string]int) []string {
	behind := followersByName(steps)
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

// DistinctSteps returns the steps in their order, without those that a later one of the
// same name replaces.
func DistinctSteps(flows []flowv1.Flow) []flowv1.Flow {
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

// Ancestors returns the names of the steps that a step depends on, directly or indirectly.
// A step in a cycle is its own ancestor.
func Ancestors(flows []flowv1.Flow, name string) map[string]bool {
	before := map[string][]string{}
	for _, s := range DistinctSteps(flows) {
		before[s.Name] = targetNames(s)
	}
	return reachableFrom(before, name)
}

// Dependents returns the names of the steps that depend on any of the named ones, directly
// or indirectly.
func Dependents(flows []flowv1.Flow, names ...string) map[string]bool {
	return reachableFrom(followersByName(DistinctSteps(flows)), names...)
}

// followersByName returns, by name of a step, the steps that have it as a target, once per
// mention.
func followersByName(steps []flowv1.Flow) map[string][]string {
	out := make(map[string][]string, len(steps))
	for _, s := range steps {
		for _, t := range targetNames(s) {
			out[t] = append(out[t], s.Name)
		}
	}
	return out
}

// reachableFrom returns all names that edges lead to from the given names.
func reachableFrom(edges map[string][]string, names ...string) map[string]bool {
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

func targetNames(s flowv1.Flow) []string {
	if s.DependsOn == nil {
		return nil
	}
	return s.DependsOn.Targets
}
