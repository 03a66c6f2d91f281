package stepjob

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// maxCost bounds one evaluation, in CEL's units: a comparison is about 1. A longer one
// would delay other flows.
const maxCost = 100_000

// celEnvironment declares the variables of when expressions.
var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[StepValues](), ext.ParseStructTags(true)),
		cel.Variable("params", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("flows", cel.MapType(cel.StringType, cel.ObjectType("stepjob.StepValues"))),
	)
})

// EvaluateWhen reports whether a step is to run. An empty expression is true. If the
// expression does not compile, selects a missing key or exceeds the cost limit, it returns
// an error, and the step must neither run nor be skipped.
func EvaluateWhen(step *flowv1.Flow, v Values) (bool, error) {
	if step.When == "" {
		return true, nil
	}
	ast, err := compileWhen(step)
	if err != nil {
		return false, err
	}
	env, err := celEnvironment()
	if err != nil {
		return false, err
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return false, fmt.Errorf("%s: %w", fieldPath(step, "when"), err)
	}
	result, _, err := program.Eval(map[string]any{"params": v.Params, "flows": v.Flows})
	if err != nil {
		return false, fmt.Errorf("%s: %w%s", fieldPath(step, "when"), err, evaluationHint(err))
	}
	yes, ok := result.Value().(bool)
	if !ok {
		return false, newNotBoolError(step, result.Type().TypeName())
	}
	return yes, nil
}

// evaluationHint returns a remedy for an evaluation error.
func evaluationHint(err error) string {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "no such key"):
		return "; check with has(…) first if it may be missing"
	case strings.Contains(text, "cost limit"):
		return "; simplify the expression"
	default:
		return ""
	}
}

// compileWhen compiles the step's expression. Its type must be bool or dynamic.
func compileWhen(step *flowv1.Flow) (*cel.Ast, error) {
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(step.When)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("%s: does not compile: %s; put names with a dash in brackets, as in flows['my-step'].outputs.x, and convert numbers with double(…) or int(…)",
			fieldPath(step, "when"), firstIssue(issues))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, newNotBoolError(step, t.String())
	}
	return ast, nil
}

// firstIssue returns the compiler's first error in one line.
func firstIssue(issues *cel.Issues) string {
	first := issues.Errors()[0]
	return fmt.Sprintf("column %d: %s", first.Location.Column()+1, strings.ReplaceAll(first.Message, "\n", " "))
}

func newNotBoolError(step *flowv1.Flow, is string) error {
	return fmt.Errorf("%s: returns %s; must return true or false, so add a comparison", fieldPath(step, "when"), is)
}
