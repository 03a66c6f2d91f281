package jobflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/graph"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// Graph holds what follows from the spec of a flow alone. It is built once per generation.
type Graph struct {
	// Invalid describes why the flow cannot run as specified. Nil if it can.
	Invalid error

	steps []flowv1.Flow
	index map[string]int
	// order lists each step after those that it depends on. Steps of a cycle come last.
	order []int
	// targets holds the indexes of the steps that each step depends on, without
	// duplicates.
	targets [][]int
	// cleanup marks the steps that are started although another step has failed: those
	// that wait for Failed or Finished, and their dependents.
	cleanup []bool
	// templates holds the templates of all steps.
	templates map[TemplateKey]bool
	// usesOutputs reports whether a step refers to outputs of other steps.
	usesOutputs bool
}

// NewGraph builds the graph of a flow. Of several steps of one name the last one counts,
// as in Volcano.
func NewGraph(spec *flowv1.JobFlowSpec) *Graph {
	g := &Graph{steps: graph.DistinctSteps(spec.Flows), templates: map[TemplateKey]bool{}}
	if n := len(g.steps); n > flowv1.MaxSteps {
		return &Graph{Invalid: fmt.Errorf("spec.flows: %d steps, at most %d are allowed; divide them among several flows", n, flowv1.MaxSteps)}
	}
	g.index = make(map[string]int, len(g.steps))
	for i := range g.steps {
		g.index[g.steps[i].Name] = i
	}
	if g.Invalid = graph.Validate(spec.Flows); g.Invalid == nil {
		g.Invalid = stepjob.CheckFlow(spec)
	}
	g.targets = make([][]int, len(g.steps))
	for i := range g.steps {
		g.targets[i] = g.targetIndexes(&g.steps[i])
		g.templates[templateKeyOf(&g.steps[i])] = true
		g.usesOutputs = g.usesOutputs || refersToOutputs(&g.steps[i])
	}
	g.sortSteps()
	g.cleanup = make([]bool, len(g.steps))
	for _, i := range g.order {
		c := dependencyCondition(&g.steps[i])
		g.cleanup[i] = len(g.targets[i]) > 0 && (c == flowv1.WhenFailed || c == flowv1.WhenFinished) ||
			slices.ContainsFunc(g.targets[i], func(t int) bool { return g.cleanup[t] })
	}
	return g
}

func (g *Graph) targetIndexes(s *flowv1.Flow) []int {
	if s.DependsOn == nil {
		return nil
	}
	var out []int
	for _, name := range s.DependsOn.Targets {
		if t, ok := g.index[name]; ok {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// refersToOutputs reports whether a step may refer to outputs of other steps.
func refersToOutputs(s *flowv1.Flow) bool {
	for _, value := range s.Params {
		if strings.Contains(value, outputReferencePrefix) {
			return true
		}
	}
	patched := s.Patch != nil && s.Patch.JobSpec != nil && strings.Contains(string(s.Patch.JobSpec.Raw), outputReferencePrefix)
	return patched || strings.Contains(s.When, "flows")
}

// outputReferencePrefix is the start of every reference to an output.
const outputReferencePrefix = "$(flows."

// sortSteps sorts the steps topologically. Those of a cycle come last.
func (g *Graph) sortSteps() {
	waits, behind := make([]int, len(g.steps)), make([][]int, len(g.steps))
	for i, targets := range g.targets {
		waits[i] = len(targets)
		for _, t := range targets {
			behind[t] = append(behind[t], i)
		}
		if waits[i] == 0 {
			g.order = append(g.order, i)
		}
	}
	for at := 0; at < len(g.order); at++ {
		for _, next := range behind[g.order[at]] {
			if waits[next]--; waits[next] == 0 {
				g.order = append(g.order, next)
			}
		}
	}
	for i := range g.steps {
		if waits[i] > 0 {
			g.order = append(g.order, i)
		}
	}
}

// findAncestors returns the steps that one depends on, directly or indirectly.
func (g *Graph) findAncestors(i int) []int {
	seen := map[int]bool{}
	var out []int
	for todo := g.targets[i]; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[: len(todo)-1 : len(todo)-1] // the capacity keeps append from overwriting g.targets
		if !seen[next] {
			seen[next] = true
			out = append(out, next)
			todo = append(todo, g.targets[next]...)
		}
	}
	return out
}

// markDependents marks the named steps and all steps that depend on them, directly or
// indirectly.
func (g *Graph) markDependents(names []string) []bool {
	marked := make([]bool, len(g.steps))
	for _, name := range names {
		if i, ok := g.index[name]; ok {
			marked[i] = true
		}
	}
	for _, i := range g.order {
		if slices.ContainsFunc(g.targets[i], func(t int) bool { return marked[t] }) {
			marked[i] = true
		}
	}
	return marked
}

// dependencyCondition returns the condition that the targets of a step must reach:
// Completed by default, Running if only a probe is given.
func dependencyCondition(s *flowv1.Flow) flowv1.DependencyCondition {
	switch {
	case s.DependsOn == nil || s.DependsOn.Condition == "" && s.DependsOn.EffectiveProbe() == nil:
		return flowv1.WhenCompleted
	case s.DependsOn.Condition == "":
		return flowv1.WhenRunning
	}
	return s.DependsOn.Condition
}

// templateKeyOf returns the template of a step. By default it is a pod template with the
// name of the step.
func templateKeyOf(s *flowv1.Flow) TemplateKey {
	if s.TemplateRef == nil {
		return TemplateKey{Pods, s.Name}
	}
	return TemplateKey{Kind(cmp.Or(s.TemplateRef.APIGroup, string(Pods))), cmp.Or(s.TemplateRef.Name, s.Name)}
}
