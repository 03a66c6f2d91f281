package stepjob

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/json"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// jobKind is a kind of Job that can be patched.
type jobKind struct {
	name             string                 // as shown in messages
	hintForOtherKind string                 // the templateRef of the other kind
	newSpec          func() any             // returns an empty spec
	prepare          func(m map[string]any) // sets the merge keys of the patch's items
}

var (
	podPatch = jobKind{
		name: "a Job of pods", hintForOtherKind: "templateRef.apiGroup: " + flowv1.TemplateGroupRobots,
		newSpec: func() any { return &batchv1.JobSpec{} }, prepare: namePatchedTasks,
	}
	robotPatch = jobKind{
		name: "a Job on robots", hintForOtherKind: "no templateRef.apiGroup",
		newSpec: func() any { return &robotv1.JobSpec{} }, prepare: func(map[string]any) {},
	}
)

func hasPatch(step *flowv1.Flow) bool {
	return step.Patch != nil && step.Patch.JobSpec != nil && len(step.Patch.JobSpec.Raw) > 0
}

// mergePatch applies the step's patch to the spec of a Job.
func mergePatch[Spec any](step *flowv1.Flow, kind jobKind, spec *Spec) error {
	patch, err := readPatch(step, kind)
	if err != nil {
		return err
	}
	original, err := stdjson.Marshal(spec)
	if err != nil {
		return err
	}
	var merged Spec
	result, err := strategicpatch.StrategicMergePatch(original, patch, merged)
	if err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(result, &merged)
	}
	if err != nil {
		return fmt.Errorf("%s: cannot be merged: %w; set the merge key of each item of a list", fieldPath(step, "patch.jobSpec"), err)
	}
	*spec = merged
	return nil
}

// readPatch returns the patch in a form that can be merged, or an error if it does not
// match the kind of Job.
func readPatch(step *flowv1.Flow, kind jobKind) ([]byte, error) {
	raw := step.Patch.JobSpec.Raw
	var patch map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &patch); err != nil {
		return nil, fmt.Errorf("%s: must be an object with fields of the Job's spec: %w", fieldPath(step, "patch.jobSpec"), err)
	}
	strict, err := json.UnmarshalStrict(raw, kind.newSpec())
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, describeDecodeError(step, kind, err)
	}
	// A null would delete a field. Patches cannot do that, because the API server drops
	// nulls from fields with a schema.
	dropNulls(patch)
	kind.prepare(patch)
	return stdjson.Marshal(patch)
}

// quotedField matches the path in an error of the decoder.
var quotedField = regexp.MustCompile(`^(unknown|duplicate) field "([^"]+)"$`)

// describeDecodeError turns an error of the decoder into one that names the field and the
// remedy.
func describeDecodeError(step *flowv1.Flow, kind jobKind, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if wrong, ok := errors.AsType[*stdjson.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: is a %s, but %s needs a %s here; use the format of the template",
			fieldPath(step, "patch.jobSpec.%s", withoutTypes(wrong.Field)), wrong.Value, kind.name, wrong.Type)
	}
	m := quotedField.FindStringSubmatch(first)
	if m == nil {
		return fmt.Errorf("%s: does not match %s: %s", fieldPath(step, "patch.jobSpec"), kind.name, first)
	}
	if m[1] == "duplicate" {
		return fmt.Errorf("%s: is set twice; remove one", fieldPath(step, "patch.jobSpec.%s", m[2]))
	}
	return fmt.Errorf("%s: %s has no such field; correct the name, or remove it (for the other kind of Job, use %s)",
		fieldPath(step, "patch.jobSpec.%s", m[2]), kind.name, kind.hintForOtherKind)
}

// withoutTypes removes Go's embedded structs from a path: they are the capitalized parts.
func withoutTypes(path string) string {
	parts := strings.Split(path, ".")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p != "" && unicode.IsUpper(rune(p[0])) })
	return strings.Join(parts, ".")
}

// namePatchedTasks sets the default names of tasks in a patch.
func namePatchedTasks(patch map[string]any) {
	tasks, _ := patch["tasks"].([]any)
	for i, t := range tasks {
		if task, ok := t.(map[string]any); ok {
			if name, _ := task["name"].(string); name == "" {
				task["name"] = defaultTaskName(i)
			}
		}
	}
}

// dropNulls removes null fields, recursively.
func dropNulls(node any) {
	switch n := node.(type) {
	case map[string]any:
		for name, value := range n {
			if value == nil {
				delete(n, name)
				continue
			}
			dropNulls(value)
		}
	case []any:
		for _, item := range n {
			dropNulls(item)
		}
	}
}
