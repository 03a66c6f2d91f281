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

// maxCost of one evaluation, in CEL's units: a comparison is about 1. A longer one
// would hold up other flows.
const maxCost = 100_000

// language is what a when is written in.
var language = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[StepValues](), ext.ParseStructTags(true)),
		cel.Variable("params", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("flows", cel.MapType(cel.StringType, cel.ObjectType("stepjob.StepValues"))),
	)
})

// When tells whether a step is to run. An empty expression is true. One that does not
// compile, asks for what is not there or takes too long is an error, and the step
// neither runs nor is skipped.
func When(step *flowv1.Flow, v Values) (bool, error) {
	if step.When == "" {
		return true, nil
	}
	ast, err := compile(step)
	if err != nil {
		return false, err
	}
	env, err := language()
	if err != nil {
		return false, err
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return false, fmt.Errorf("%s: %w", field(step, "when"), err)
	}
	result, _, err := program.Eval(map[string]any{"params": v.Params, "flows": v.Flows})
	if err != nil {
		return false, fmt.Errorf("%s: %w%s", field(step, "when"), err, advice(err))
	}
	yes, ok := result.Value().(bool)
	if !ok {
		return false, notBool(step, result.Type().TypeName())
	}
	return yes, nil
}

// advice on an error of an evaluation.
func advice(err error) string {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "no such key"):
		return "; ask with has(…) first where it may be missing"
	case strings.Contains(text, "cost limit"):
		return "; make it simpler"
	default:
		return ""
	}
}

// compile reads the step's expression, whose result must be able to be a bool.
func compile(step *flowv1.Flow) (*cel.Ast, error) {
	env, err := language()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(step.When)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("%s: does not compile: %s; a name with a dash goes in brackets, as in flows['my-step'].outputs.x, and a number is read as double(…) or int(…)",
			field(step, "when"), firstIssue(issues))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, notBool(step, t.String())
	}
	return ast, nil
}

// firstIssue is the first thing that the compiler has to say, in one line.
func firstIssue(issues *cel.Issues) string {
	first := issues.Errors()[0]
	return fmt.Sprintf("column %d: %s", first.Location.Column()+1, strings.ReplaceAll(first.Message, "\n", " "))
}

func notBool(step *flowv1.Flow, is string) error {
	return fmt.Errorf("%s: gives a %s; it must give true or false, so compare it with something", field(step, "when"), is)
}
