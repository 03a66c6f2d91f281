package stepjob

import (
	"fmt"
	"maps"
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/dag"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Check tells what is wrong with a flow as far as that can be known without its
// templates: a when that does not compile, a patch that does not fit, a reference to
// a param that is nowhere or to a step that the referring one does not depend on, a
// probe that asks nobody. The error names the field and the way out. The graph itself is dag.Validate's.
func Check(spec *flowv1.JobFlowSpec) error {
	steps := dag.Distinct(spec.Flows)
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
	if r := step.Retry; r != nil && r.Backoff != nil && r.Backoff.Duration < 0 {
		return fmt.Errorf("%s: is %s; it must not be negative, so write such as 10s, or leave it out", field(step, "retry.backoff"), r.Backoff.Duration)
	}
	k := known{params: maps.Clone(spec.Params), ancestors: sync.OnceValue(func() map[string]bool {
		return dag.Ancestors(spec.Flows, step.Name)
	})}
	if _, err := resolveParams(step, k.expander()); err != nil {
		return err
	}
	if k.params == nil {
		k.params = map[string]string{}
	}
	maps.Copy(k.params, step.Params)
	if err := checkPatch(step, k.expander()); err != nil {
		return err
	}
	return checkWhen(step, k)
}

// known is what a step may refer to.
type known struct {
	// ancestors are the steps that it depends on. They are looked for when they are
	// asked for: most steps of a large flow refer to none.
	ancestors func() map[string]bool
	params    map[string]string
}

// before tells whether the step depends on another.
func (k known) before(step string) bool { return k.ancestors()[step] }

// expander that fills in nothing, and complains of what it could not.
func (k known) expander() expander {
	return expander{literal: asItIs, lookup: func(r reference) (string, error) {
		if r.step == "" {
			return Values{Params: k.params}.lookup(r)
		}
		if !k.before(r.step) {
			return "", notBefore(r)
		}
		return "", nil
	}}
}

// checkPatch reads the patch and the references in it.
func checkPatch(step *flowv1.Flow, e expander) error {
	if !hasPatch(step) {
		return nil
	}
	var err error
	if onRobots(step) {
		var spec robotv1.JobSpec
		if err = merge(step, robotPatch, &spec); err != nil {
			return err
		}
		err = expandRobots(&spec, e)
	} else {
		var spec batchv1.JobSpec
		if err = merge(step, podPatch, &spec); err != nil {
			return err
		}
		err = expandPods(&spec, e)
	}
	if err != nil {
		return fmt.Errorf("%s%w", field(step, "patch.jobSpec."), err)
	}
	return nil
}

// checkWhen compiles the step's expression and looks at what it refers to.
func checkWhen(step *flowv1.Flow, k known) error {
	if step.When == "" {
		return nil
	}
	compiled, err := compile(step)
	if err != nil {
		return err
	}
	ast.PostOrderVisit(compiled.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, ok := keyOf(e, "flows"); ok && !k.before(name) && err == nil {
			err = fmt.Errorf("%s: the step does not depend on %s; name it, or one that depends on it, in dependsOn.targets", field(step, "when"), name)
		}
		if name, ok := keyOf(e, "params"); ok && err == nil {
			if _, set := k.params[name]; !set {
				err = fmt.Errorf("%s: there is no param %s; set it in spec.params or in the step's params", field(step, "when"), name)
			}
		}
	}))
	return err
}

// keyOf is the key that an expression takes out of the variable, as variable.key or
// variable['key']. A has(variable.key) takes nothing.
func keyOf(e ast.Expr, variable string) (string, bool) {
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
