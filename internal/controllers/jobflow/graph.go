package jobflow

import (
	"cmp"
	"slices"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/stepjob"
)

// Graph is what follows from the spec of a flow alone. It is made once a generation.
type Graph struct {
	// Invalid says why the flow cannot run as it is written. Nil: it can.
	Invalid error

	steps []flowv1.Flow
	index map[string]int
	// order has every step after those that it depends on. Without an order it is
	// that of the spec.
	order []int
	// targets of each step, each once.
	targets [][]int
	// cleanup are the steps that are started although one has failed: those that
	// wait for an end however it was, and what depends on them.
	cleanup []bool
	// templates that the steps are made from.
	templates map[TemplateKey]bool
	// usesOutputs: a step refers to what others have put out.
	usesOutputs bool
}

// NewGraph reads the spec of a flow. Of steps that bear the same name the last one
// counts (contract §3.6).
func NewGraph(spec *flowv1.JobFlowSpec) *Graph {
	g := &Graph{steps: dag.Distinct(spec.Flows), templates: map[TemplateKey]bool{}}
	g.index = make(map[string]int, len(g.steps))
	for i := range g.steps {
		g.index[g.steps[i].Name] = i
	}
	if g.Invalid = dag.Validate(spec.Flows); g.Invalid == nil {
		g.Invalid = stepjob.Check(spec)
	}
	g.targets = make([][]int, len(g.steps))
	for i := range g.steps {
		g.targets[i] = g.targetsOf(&g.steps[i])
		g.templates[templateOf(&g.steps[i])] = true
		g.usesOutputs = g.usesOutputs || refers(&g.steps[i])
	}
	g.sort()
	g.cleanup = make([]bool, len(g.steps))
	for _, i := range g.order {
		c := condition(&g.steps[i])
		g.cleanup[i] = len(g.targets[i]) > 0 && (c == flowv1.WhenFailed || c == flowv1.WhenFinished) ||
			slices.ContainsFunc(g.targets[i], func(t int) bool { return g.cleanup[t] })
	}
	return g
}

func (g *Graph) targetsOf(s *flowv1.Flow) []int {
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

// refers tells whether a step may refer to outputs of others.
func refers(s *flowv1.Flow) bool {
	for _, value := range s.Params {
		if strings.Contains(value, mention) {
			return true
		}
	}
	patched := s.Patch != nil && s.Patch.JobSpec != nil && strings.Contains(string(s.Patch.JobSpec.Raw), mention)
	return patched || strings.Contains(s.When, "flows")
}

// mention is how a reference to an output begins.
const mention = "$(flows."

// sort puts the steps into their order. Those of a cycle come last.
func (g *Graph) sort() {
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

// ancestors are the steps that one depends on, directly or not.
func (g *Graph) ancestors(i int) []int {
	seen := map[int]bool{}
	var out []int
	for todo := g.targets[i]; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[: len(todo)-1 : len(todo)-1] // what the graph has is not written over
		if !seen[next] {
			seen[next] = true
			out = append(out, next)
			todo = append(todo, g.targets[next]...)
		}
	}
	return out
}

// dependents marks the named steps and all that depends on them, directly or not.
func (g *Graph) dependents(names []string) []bool {
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

// condition that the targets of a step must have come to (contract §4 rows 2 and 4).
func condition(s *flowv1.Flow) flowv1.DependencyCondition {
	switch {
	case s.DependsOn == nil || s.DependsOn.Condition == "" && s.DependsOn.Probe == nil:
		return flowv1.WhenCompleted
	case s.DependsOn.Condition == "":
		return flowv1.WhenRunning
	}
	return s.DependsOn.Condition
}

// templateOf names the template of a step.
func templateOf(s *flowv1.Flow) TemplateKey {
	if s.TemplateRef == nil {
		return TemplateKey{Pods, s.Name}
	}
	return TemplateKey{Kind(cmp.Or(s.TemplateRef.APIGroup, string(Pods))), cmp.Or(s.TemplateRef.Name, s.Name)}
}
