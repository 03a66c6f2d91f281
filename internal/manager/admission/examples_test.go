package admission

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// example has the objects of one file.
type example struct {
	flows  []flowv1.JobFlow
	pods   map[string]*flowv1.JobTemplate
	robots map[string]*robotv1.JobTemplate
}

// TestJobFlow_AcceptsExamples accepts all examples, and creates the Job of each step whose template
// is in the same file.
func TestJobFlow_AcceptsExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/jobflow/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			e := readExample(t, file)
			for i := range e.flows {
				if err := ValidateJobFlow(&e.flows[i]); err != nil {
					t.Error(err)
				}
				e.makeJobs(t, &e.flows[i])
			}
		})
	}
}

func readExample(t *testing.T, file string) *example {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	e := &example{pods: map[string]*flowv1.JobTemplate{}, robots: map[string]*robotv1.JobTemplate{}}
	for docs := yamlutil.NewYAMLToJSONDecoder(bytes.NewReader(data)); ; {
		var o unstructured.Unstructured
		err := docs.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return e
		}
		if err != nil {
			t.Fatal(err)
		}
		e.take(t, o)
	}
}

func (e *example) take(t *testing.T, o unstructured.Unstructured) {
	switch o.GetAPIVersion() + " " + o.GetKind() {
	case "flow.volcano.sh/v1alpha1 JobFlow":
		e.flows = append(e.flows, *typed[flowv1.JobFlow](t, o))
	case "flow.volcano.sh/v1alpha1 JobTemplate":
		e.pods[o.GetName()] = typed[flowv1.JobTemplate](t, o)
	case "robot.k8s4r.io/v1alpha1 JobTemplate":
		e.robots[o.GetName()] = typed[robotv1.JobTemplate](t, o)
	case "flow.k8s4r.io/v1alpha1 CronJobFlow":
		cron := typed[cronv1.CronJobFlow](t, o)
		if err := cronjobflow.Validate(&cron.Spec); err != nil {
			t.Error(err)
		}
		e.flows = append(e.flows, flowv1.JobFlow{Spec: cron.Spec.JobFlowTemplate.Spec})
	}
}

// typed decodes an object and rejects unknown fields.
func typed[T any](t *testing.T, o unstructured.Unstructured) *T {
	t.Helper()
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// makeJobs creates the Jobs of all steps. Every output that a step may use exists.
func (e *example) makeJobs(t *testing.T, f *flowv1.JobFlow) {
	outputs := map[string]string{"found": "cracks", "height": "42", "accuracy": "0.87", "pictures": "120", "rows": "360", "model": "large"}
	values := map[string]stepjob.StepValues{}
	for _, s := range f.Spec.Flows {
		values[s.Name] = stepjob.StepValues{State: "Completed", Outputs: outputs}
	}
	for i := range f.Spec.Flows {
		step := &f.Spec.Flows[i]
		v, err := stepjob.ResolveValues(&f.Spec, step, values)
		if err == nil {
			_, err = stepjob.EvaluateWhen(step, v)
		}
		name := step.Name
		if step.TemplateRef != nil && step.TemplateRef.Name != "" {
			name = step.TemplateRef.Name
		}
		if pods := e.pods[name]; err == nil && pods != nil {
			_, err = stepjob.BuildPodJobSpec(pods, step, v)
		}
		if robots := e.robots[name]; err == nil && robots != nil {
			_, err = stepjob.BuildRobotJobSpec(robots, step, v)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
