package stepjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"
)

// Values are what a step's template and its when may refer to.
type Values struct {
	// Params of the flow, and over them those of the step.
	Params map[string]string
	// Flows has the steps that this one depends on, directly or not, by name.
	Flows map[string]StepValues
}

// StepValues are what others may know of a step.
type StepValues struct {
	// State is Completed, Failed, Skipped, Running or Pending.
	State string `cel:"state"`
	// Outputs by name. A step that was skipped has none.
	Outputs map[string]string `cel:"outputs"`
}

// Resolve gathers the values for a step out of what is known of all steps. References
// in the step's own params are filled in; one that stands for nothing is an error
// that names it.
func Resolve(flow *flowv1.JobFlowSpec, step *flowv1.Flow, steps map[string]StepValues) (Values, error) {
	before := map[string]StepValues{}
	for name := range dag.Ancestors(flow.Flows, step.Name) {
		if known, ok := steps[name]; ok {
			before[name] = known
		}
	}
	return ResolveAfter(flow, step, before)
}

// ResolveAfter is Resolve for who knows which steps the step depends on: before has
// those, and no others.
func ResolveAfter(flow *flowv1.JobFlowSpec, step *flowv1.Flow, before map[string]StepValues) (Values, error) {
	v := Values{Params: maps.Clone(flow.Params), Flows: before}
	if v.Params == nil {
		v.Params = map[string]string{}
	}
	own, err := resolveParams(step, expander{lookup: v.lookup, literal: asItIs})
	if err != nil {
		return Values{}, err
	}
	maps.Copy(v.Params, own)
	return v, nil
}

// resolveParams are the params of a step with their references filled in. They refer
// to params of the flow, never to one another.
func resolveParams(step *flowv1.Flow, e expander) (map[string]string, error) {
	out := make(map[string]string, len(step.Params))
	for _, name := range slices.Sorted(maps.Keys(step.Params)) {
		value, err := e.expand(step.Params[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field(step, "params[%s]", name), err)
		}
		out[name] = value
	}
	return out, nil
}

// lookup is what a reference stands for.
func (v Values) lookup(r reference) (string, error) {
	if r.step == "" {
		value, ok := v.Params[r.name]
		if !ok {
			return "", fmt.Errorf("%s stands for nothing: set %s in spec.params or in the step's params, or write $%s for that text itself", r, r.name, r)
		}
		return value, nil
	}
	s, ok := v.Flows[r.step]
	if !ok {
		return "", notBefore(r)
	}
	value, ok := s.Outputs[r.name]
	if !ok {
		return "", fmt.Errorf("%s stands for nothing: step %s is %s and its outputs are [%s]; have it write a line %s=VALUE, or refer to one that it has",
			r, r.step, s.State, strings.Join(slices.Sorted(maps.Keys(s.Outputs)), " "), r.name)
	}
	return value, nil
}

// notBefore says that a step cannot know of another.
func notBefore(r reference) error {
	return fmt.Errorf("%s: the step does not depend on %s; name it, or one that depends on it, in dependsOn.targets", r, r.step)
}

// field is the path of a field of a step, for people.
func field(step *flowv1.Flow, format string, args ...any) string {
	return fmt.Sprintf("spec.flows[%s].", step.Name) + fmt.Sprintf(format, args...)
}
