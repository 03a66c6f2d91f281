package stepjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/graph"
)

// Values are the values that a step's template and its when may refer to.
type Values struct {
	// Params of the flow, overridden by those of the step.
	Params map[string]string
	// Flows holds the steps that this one depends on, directly or indirectly, by name.
	Flows map[string]StepValues
}

// StepValues are the values of one step.
type StepValues struct {
	// State is Completed, Failed, Skipped, Running or Pending.
	State string `cel:"state"`
	// Outputs by name. A skipped step has none.
	Outputs map[string]string `cel:"outputs"`
}

// ResolveValues selects the values that a step may refer to from those of all steps, and
// replaces the references in its params.
func ResolveValues(flow *flowv1.JobFlowSpec, step *flowv1.Flow, steps map[string]StepValues) (Values, error) {
	before := map[string]StepValues{}
	for name := range graph.Ancestors(flow.Flows, step.Name) {
		if known, ok := steps[name]; ok {
			before[name] = known
		}
	}
	return ResolveValuesAfter(flow, step, before)
}

// ResolveValuesAfter is ResolveValues for callers that know the ancestors: before must
// hold exactly those.
func ResolveValuesAfter(flow *flowv1.JobFlowSpec, step *flowv1.Flow, before map[string]StepValues) (Values, error) {
	v := Values{Params: maps.Clone(flow.Params), Flows: before}
	if v.Params == nil {
		v.Params = map[string]string{}
	}
	own, err := resolveParams(step, expander{lookup: v.lookupReference, literal: keepLiteral})
	if err != nil {
		return Values{}, err
	}
	maps.Copy(v.Params, own)
	return v, nil
}

// resolveParams returns the params of a step with references replaced. They can refer to
// params of the flow, but not to each other.
func resolveParams(step *flowv1.Flow, e expander) (map[string]string, error) {
	out := make(map[string]string, len(step.Params))
	for _, name := range slices.Sorted(maps.Keys(step.Params)) {
		value, err := e.expandText(step.Params[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fieldPath(step, "params[%s]", name), err)
		}
		out[name] = value
	}
	return out, nil
}

// lookupReference returns the value of a reference.
func (v Values) lookupReference(r reference) (string, error) {
	if r.step == "" {
		value, ok := v.Params[r.name]
		if !ok {
			return "", fmt.Errorf("%s is not defined: set %s in spec.params or in the step's params, or use $%s for the literal text", r, r.name, r)
		}
		return value, nil
	}
	s, ok := v.Flows[r.step]
	if !ok {
		return "", newNotAncestorError(r)
	}
	value, ok := s.Outputs[r.name]
	if !ok {
		return "", fmt.Errorf("%s is not defined: step %s is %s and its outputs are [%s]; let it write a line %s=VALUE, or refer to one of its outputs",
			r, r.step, s.State, strings.Join(slices.Sorted(maps.Keys(s.Outputs)), " "), r.name)
	}
	return value, nil
}

func newNotAncestorError(r reference) error {
	return fmt.Errorf("%s: the step does not depend on %s; add it, or a step that depends on it, to dependsOn.targets", r, r.step)
}

// fieldPath returns the path of a field of a step.
func fieldPath(step *flowv1.Flow, format string, args ...any) string {
	return fmt.Sprintf("spec.flows[%s].", step.Name) + fmt.Sprintf(format, args...)
}
