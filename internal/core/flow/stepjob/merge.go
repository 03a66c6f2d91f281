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

// target is a kind of Job that a patch may be for.
type target struct {
	name  string                 // for people
	other string                 // what to write in templateRef for the other kind
	spec  func() any             // an empty spec
	ready func(m map[string]any) // makes the patch's items known by their keys
}

var (
	podPatch = target{
		name: "a Job of pods", other: "templateRef.apiGroup: " + flowv1.TemplateGroupRobots,
		spec: func() any { return &batchv1.JobSpec{} }, ready: namePatchedTasks,
	}
	robotPatch = target{
		name: "a Job on robots", other: "no templateRef.apiGroup",
		spec: func() any { return &robotv1.JobSpec{} }, ready: func(map[string]any) {},
	}
)

func hasPatch(step *flowv1.Flow) bool {
	return step.Patch != nil && step.Patch.JobSpec != nil && len(step.Patch.JobSpec.Raw) > 0
}

// merge changes the spec of a Job by the step's patch.
func merge[Spec any](step *flowv1.Flow, kind target, spec *Spec) error {
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
		return fmt.Errorf("%s: does not fit: %w; give each item of a list the field that tells it from the others", field(step, "patch.jobSpec"), err)
	}
	*spec = merged
	return nil
}

// readPatch is the patch as it can be merged, or why it does not fit the kind of Job.
func readPatch(step *flowv1.Flow, kind target) ([]byte, error) {
	raw := step.Patch.JobSpec.Raw
	var patch map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &patch); err != nil {
		return nil, fmt.Errorf("%s: must be an object with fields of the Job's spec: %w", field(step, "patch.jobSpec"), err)
	}
	strict, err := json.UnmarshalStrict(raw, kind.spec())
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, misfit(step, kind, err)
	}
	// A null would delete, which a patch cannot: the API server drops it from what a
	// schema describes.
	dropNulls(patch)
	kind.ready(patch)
	return stdjson.Marshal(patch)
}

// quotedField is the path in an error of the decoder.
var quotedField = regexp.MustCompile(`^(unknown|duplicate) field "([^"]+)"$`)

// misfit says of an error of the decoder what is wrong where, and what to do.
func misfit(step *flowv1.Flow, kind target, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if wrong, ok := errors.AsType[*stdjson.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: is a %s where %s has a %s; write it as the template would",
			field(step, "patch.jobSpec.%s", withoutTypes(wrong.Field)), wrong.Value, kind.name, wrong.Type)
	}
	m := quotedField.FindStringSubmatch(first)
	if m == nil {
		return fmt.Errorf("%s: does not fit %s: %s", field(step, "patch.jobSpec"), kind.name, first)
	}
	if m[1] == "duplicate" {
		return fmt.Errorf("%s: is there twice; leave one out", field(step, "patch.jobSpec.%s", m[2]))
	}
	return fmt.Errorf("%s: %s has no such field; correct its name, or leave it out (for the other kind of Job write %s)",
		field(step, "patch.jobSpec.%s", m[2]), kind.name, kind.other)
}

// withoutTypes is a path less the embedded structs of Go in it: no field is written
// in capitals.
func withoutTypes(path string) string {
	parts := strings.Split(path, ".")
	parts = slices.DeleteFunc(parts, func(p string) bool { return p != "" && unicode.IsUpper(rune(p[0])) })
	return strings.Join(parts, ".")
}

// namePatchedTasks gives the tasks of a patch the names that those of a template get.
func namePatchedTasks(patch map[string]any) {
	tasks, _ := patch["tasks"].([]any)
	for i, t := range tasks {
		if task, ok := t.(map[string]any); ok {
			if name, _ := task["name"].(string); name == "" {
				task["name"] = taskName(i)
			}
		}
	}
}

// dropNulls takes fields without a value out of an object and all objects in it.
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
