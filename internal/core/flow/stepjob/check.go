package stepjob

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/graph"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// CheckFlow validates a flow as far as possible without its templates: when expressions,
// patches, references and probes. The error names the field and the remedy. graph.Validate
// validates the graph.
func CheckFlow(spec *flowv1.JobFlowSpec) error {
	steps := graph.DistinctSteps(spec.Flows)
	robots := robotSteps(steps)
	for i := range steps {
		if err := checkStep(spec, &steps[i]); err != nil {
			return err
		}
		if err := checkProbe(&steps[i], robots); err != nil {
			return err
		}
	}
	return nil
}

func checkStep(spec *flowv1.JobFlowSpec, step *flowv1.Flow) error {
	if r := step.Retry; r != nil && r.Backoff != nil {
		if d, err := time.ParseDuration(string(*r.Backoff)); err != nil || d < 0 {
			return fmt.Errorf("%s: %q is no duration, or negative; use one such as 10s, or omit the field", fieldPath(step, "retry.backoff"), *r.Backoff)
		}
	}
	k := allowedReferences{params: maps.Clone(spec.Params), ancestors: sync.OnceValue(func() map[string]bool {
		return graph.Ancestors(spec.Flows, step.Name)
	})}
	if _, err := resolveParams(step, k.newExpander()); err != nil {
		return err
	}
	if k.params == nil {
		k.params = map[string]string{}
	}
	maps.Copy(k.params, step.Params)
	if err := checkPatch(step, k.newExpander()); err != nil {
		return err
	}
	return checkWhen(step, k)
}

// allowedReferences is what a step may refer to.
type allowedReferences struct {
	// ancestors returns the steps that it depends on. Computed on demand: most steps of a
	// large flow refer to none.
	ancestors func() map[string]bool
	params    map[string]string
}

// isAncestor reports whether the step depends on another.
func (k allowedReferences) isAncestor(step string) bool { return k.ancestors()[step] }

// newExpander returns an expander that only validates references.
func (k allowedReferences) newExpander() expander {
	return expander{literal: keepLiteral, lookup: func(r reference) (string, error) {
		if r.step == "" {
			return Values{Params: k.params}.lookupReference(r)
		}
		if !k.isAncestor(r.step) {
			return "", newNotAncestorError(r)
		}
		return "", nil
	}}
}

// checkPatch validates the patch and the references in it.
func checkPatch(step *flowv1.Flow, e expander) error {
	if !hasPatch(step) {
		return nil
	}
	var err error
	if isRobotStep(step) {
		var spec robotv1.JobSpec
		if err = mergePatch(step, robotPatch, &spec); err != nil {
			return err
		}
		err = expandRobots(&spec, e)
	} else {
		var spec batchv1.JobSpec
		if err = mergePatch(step, podPatch, &spec); err != nil {
			return err
		}
		err = expandPods(&spec, e)
	}
	if err != nil {
		return fmt.Errorf("%s%w", fieldPath(step, "patch.jobSpec."), err)
	}
	return nil
}

// checkWhen compiles the step's expression and validates its references.
func checkWhen(step *flowv1.Flow, k allowedReferences) error {
	if step.When == "" {
		return nil
	}
	compiled, err := compileWhen(step)
	if err != nil {
		return err
	}
	ast.PostOrderVisit(compiled.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, ok := selectedKey(e, "flows"); ok && !k.isAncestor(name) && err == nil {
			err = fmt.Errorf("%s: the step does not depend on %s; add it, or a step that depends on it, to dependsOn.targets", fieldPath(step, "when"), name)
		}
		if name, ok := selectedKey(e, "params"); ok && err == nil {
			if _, set := k.params[name]; !set {
				err = fmt.Errorf("%s: unknown param %s; set it in spec.params or in the step's params", fieldPath(step, "when"), name)
			}
		}
	}))
	return err
}

// selectedKey returns the key that an expression selects from the variable, as
// variable.key or variable['key']. has(variable.key) does not select.
func selectedKey(e ast.Expr, variable string) (string, bool) {
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return s.FieldName(), isIdent(s.Operand(), variable) && !s.IsTestOnly()
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || !isIdent(c.Args()[0], variable) || c.Args()[1].Kind() != ast.LiteralKind {
			return "", false
		}
		key, ok := c.Args()[1].AsLiteral().(types.String)
		return string(key), ok
	default:
		return "", false
	}
}

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }
