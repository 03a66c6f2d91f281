package controllers

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestJobFlow_PrintsVolcanosExamples applies the two manifests of Volcano's document unchanged, with
// kubectl, and finds what it prints.
func TestJobFlow_PrintsVolcanosExamples(t *testing.T) {
	t.Parallel()
	s := &flows{&space{T: t, system: startApart(t, apartServer, flowsOnly, "default"), name: "default"}}
	s.runs(nil)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := s.up.RunProgram("k8s4r", append([]string{"kubectl"}, args...)...)
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return out
	}
	kubectl("apply", "-f", "../../examples/jobflow/ml-pipeline.yaml")
	s.awaitFlow("ml-pipeline", flowv1.Succeed)
	s.template("data-download", "feature-engineering", "model-training-v1", "model-training-v2", "model-ensemble")
	kubectl("apply", "-f", "../../examples/jobflow/parallel-pipeline.yaml")
	f := s.awaitFlow("parallel-pipeline", flowv1.Succeed)

	rows := func(out string) (all [][]string) {
		for _, line := range testkit.SplitLines(out) {
			all = append(all, strings.Fields(line))
		}
		return all
	}
	t.Run("kubectl get jf prints NAME STATUS AGE, and the short names work", func(t *testing.T) {
		got := rows(kubectl("get", "jf"))
		if len(got) != 3 || !slices.Equal(got[0], []string{"NAME", "STATUS", "AGE"}) || got[1][0] != "ml-pipeline" || got[1][1] != "Succeed" {
			t.Errorf("%v", got)
		}
		for _, short := range []string{"jt", "vcjob", "vj"} {
			kubectl("get", short)
		}
	})
	t.Run("the Jobs are found by the label of their flow", func(t *testing.T) {
		got := rows(kubectl("get", "vcjob", "-n", "default", "-l", "volcano.sh/createdByJobFlow=default.ml-pipeline"))
		var names []string
		for _, row := range got[1:] {
			names = append(names, row[0]+" "+row[1])
		}
		if want := []string{"ml-pipeline-data-preprocess Completed", "ml-pipeline-model-evaluation Completed", "ml-pipeline-model-training Completed"}; !slices.Equal(names, want) {
			t.Errorf("%v", names)
		}
	})
	t.Run("the Jobs of the other are deleted, its status stays", func(t *testing.T) {
		testkit.Eventually(t, waitTimeout, "its Jobs are deleted", func() bool { return len(s.vcjobs()) == 3 })
		if len(f.Status.CompletedJobs) != 5 || len(f.Status.JobStatusList) != 5 {
			t.Errorf("%+v", f.Status)
		}
	})
}

// TestAdmission_AcceptsExamplesOfFlows validates each example with a dry run.
func TestAdmission_AcceptsExamplesOfFlows(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly)
	files, err := filepath.Glob("../../examples/jobflow/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
				var o unstructured.Unstructured
				if err := d.Decode(&o); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					t.Fatal(err)
				}
				if o.GetNamespace() == "" {
					o.SetNamespace(metav1.NamespaceDefault)
				}
				if err := s.Create(t.Context(), &o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}
