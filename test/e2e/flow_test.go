package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// A flow whose steps run on robots and in pods hands its values from one to the
// next, and every step runs once.
func TestJobFlow_CrossesRobotsAndPods(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "2", "--node-capacity", "cpu=8,memory=8Gi")
	for i := range 2 {
		s.awaitRobot(fmt.Sprintf("robot-%d", i+1), "Online", 30*time.Second)
	}
	s.applyFile("../../examples/jobflow/inspection.yaml")
	f := s.awaitFlow("inspection", flowv1.Succeed)
	got := map[string]string{}
	for _, step := range f.Status.Steps {
		maps.Copy(got, step.Outputs)
	}
	want := map[string]string{"pictures": "120", "rows": "360", "accuracy": "0.93", "model": "large"}
	for name, value := range want {
		if name != "accuracy" && got[name] != value {
			t.Errorf("the steps have handed on %v, want %v", got, want)
		}
	}
	out, err := s.RunProgram("k8s4r", "flow", "logs", "inspection")
	if err != nil {
		t.Fatalf("flow logs: %v\n%s", err, out)
	}
	for _, line := range []string{"robot-1 takes pictures of hall north", "120 pictures", "training the small model on 360 rows", "training the large model on 360 rows", "robot-2 loads the large model"} {
		if !strings.Contains(out, line) {
			t.Errorf("the logs lack %q:\n%s", line, out)
		}
	}
	if n := strings.Count(out, "loads the large model"); n != 2 {
		t.Errorf("%d robots have loaded the model, want 2:\n%s", n, out)
	}
}

// The two manifests of Volcano's document, unchanged, with real processes. The scripts that they
// name, and the templates that the second one omits, are ours.
func TestJobFlow_RunsVolcanosExamples(t *testing.T) {
	bin := t.TempDir()
	ran := filepath.Join(t.TempDir(), "ran")
	python := "#!/bin/sh\necho \"$1\" >> " + ran + "\n"
	if err := os.WriteFile(filepath.Join(bin, "python"), []byte(python), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s := start(t, "--without", "robots,broker,server", "--node-capacity", "cpu=16,memory=64Gi,nvidia.com/gpu=2")
	s.applyFile("../../examples/jobflow/ml-pipeline.yaml")
	s.awaitFlow("ml-pipeline", flowv1.Succeed)
	s.hasRun(ran, "preprocess.py train.py train.py evaluate.py")

	for _, name := range []string{"data-download", "feature-engineering", "model-training-v1", "model-training-v2", "model-ensemble"} {
		s.apply(fmt.Sprintf(`{"apiVersion":"flow.volcano.sh/v1alpha1","kind":"JobTemplate","metadata":{"name":%q},"spec":{"tasks":[{"name":"main","replicas":1,`+
			`"template":{"spec":{"restartPolicy":"OnFailure","containers":[{"name":"main","image":"any","command":["python",%q]}]}}}]}}`, name, name))
	}
	s.applyFile("../../examples/jobflow/parallel-pipeline.yaml")
	s.awaitFlow("parallel-pipeline", flowv1.Succeed)
	lines := s.lines(ran)[4:]
	at := func(name string) int { return slices.Index(lines, name) }
	if len(lines) != 5 || at("data-download") != 0 || at("model-ensemble") != 4 || at("feature-engineering") > at("model-training-v2") {
		t.Errorf("they have run as %v", lines)
	}
	testkit.Eventually(t, time.Minute, "jobRetainPolicy delete has its way", func() bool {
		out, err := s.kubectl("get", "vcjob", "-l", flowv1.KeyCreatedByJobFlow+"=default.parallel-pipeline", "-o", "name")
		return err == nil && strings.TrimSpace(out) == ""
	})
}

func (s *system) applyFile(path string) {
	s.t.Helper()
	if out, err := s.kubectl("apply", "-f", path); err != nil {
		s.t.Fatalf("apply: %v\n%s", err, out)
	}
}

func (s *system) awaitFlow(name string, phase flowv1.Phase) *flowv1.JobFlow {
	s.t.Helper()
	f := &flowv1.JobFlow{}
	testkit.EventuallyNoError(s.t, 2*time.Minute, "flow "+name+" becomes "+string(phase), func() error {
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: name}, f); err != nil {
			return err
		}
		if f.Status.State.Phase != phase {
			return fmt.Errorf("it is %q: %+v", f.Status.State.Phase, f.Status.Steps)
		}
		return nil
	})
	return f
}

func (s *system) lines(file string) []string {
	s.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

func (s *system) hasRun(file, want string) {
	s.t.Helper()
	if got := strings.Join(s.lines(file), " "); got != want {
		s.t.Errorf("has run %q, want %q", got, want)
	}
}
