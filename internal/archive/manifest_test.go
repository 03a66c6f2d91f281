package archive_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "hall", Name: name, UID: "u-1", ResourceVersion: "42", CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{"a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
}

func ofFlow(m metav1.ObjectMeta, template string) metav1.ObjectMeta {
	m.Annotations = map[string]string{flowv1.KeyCreatedByJobTemplate: "hall." + template}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: flowv1.GroupVersion.String(), Kind: "JobFlow", Name: "f", UID: "u-f", Controller: ptr.To(true)}}
	return m
}

func TestNewObject(t *testing.T) {
	start, end := metav1.NewMicroTime(noon), metav1.NewMicroTime(noon.Add(time.Minute))
	ended := metav1.NewTime(end.Time)
	task := &v1alpha1.Task{ObjectMeta: meta("j-g-0-shoot"), Spec: v1alpha1.TaskSpec{JobName: "j", TaskGroupName: "j-g"}}
	task.Spec.Name = "shoot"
	task.Status = v1alpha1.TaskStatus{State: "failed", Reason: "Exited", StartedAt: &start, FinishedAt: &end, Attempt: 3, Attempts: []v1alpha1.TaskAttempt{
		{Attempt: 1, Robot: "r1", State: "exited", Reason: "Exited", ExitCode: ptr.To(int32(3))},
		{Attempt: 2, Robot: "r1", State: "failed", Reason: "AgentStopped"},
		{Attempt: 3, Robot: "r2", State: "failed", Reason: "OOMKilled", Signal: 9, RunCount: 14, StartedAt: &start, FinishedAt: &end},
	}}
	generated := meta("k8s4r-run-x7")
	generated.GenerateName = "k8s4r-run-"
	robotJob := &v1alpha1.Job{ObjectMeta: ofFlow(meta("f-drive"), "tour"), Status: v1alpha1.JobStatus{State: "completed", StartedAt: &start, CompletedAt: &end}}
	for _, c := range []struct {
		name string
		got  func() (archive.Object, error)
		want archive.Object
		kind string
	}{
		{"a task and its attempts", func() (archive.Object, error) { return archive.NewObject(task, robotJob) }, archive.Object{
			Kind: archive.Task, Template: "tour", Step: "g/shoot", Robot: "r2", Phase: "failed", Reason: "Exited", Outcome: archive.Failed,
			Changed: end.Time, Started: start.Time, Finished: end.Time,
			Attempts: []archive.Attempt{
				{Job: "j", Number: 1, Robot: "r1", State: "exited", Reason: "Exited", Failed: true, ExitCode: ptr.To(int64(3)), Log: "/v1/namespaces/hall/tasks/j-g-0-shoot/logs?attempt=1"},
				{Job: "j", Number: 2, Robot: "r1", State: "failed", Reason: "AgentStopped", Log: "/v1/namespaces/hall/tasks/j-g-0-shoot/logs?attempt=2"},
				{Job: "j", Number: 3, Robot: "r2", State: "failed", Reason: "OOMKilled", Failed: true, Signal: 9, RunCount: 14, Started: start.Time, Finished: end.Time, Log: "/v1/namespaces/hall/tasks/j-g-0-shoot/logs?attempt=3"},
			},
		}, "Task"},
		{"a job of a flow", func() (archive.Object, error) { return archive.NewObject(robotJob, nil) }, archive.Object{
			Kind: archive.Job, Owner: "u-f", Template: "tour", Step: "drive", Phase: "completed", Outcome: archive.Succeeded, Changed: end.Time, Started: start.Time, Finished: end.Time,
		}, "Job"},
		{"a job with a generated name, requeued", func() (archive.Object, error) {
			return archive.NewObject(&v1alpha1.Job{ObjectMeta: generated, Status: v1alpha1.JobStatus{State: "requeueing", StartedAt: &start, CompletedAt: &end}}, nil)
		}, archive.Object{Kind: archive.Job, Template: "k8s4r-run", Phase: "requeueing", Started: start.Time}, "Job"},
		{"a flow that was canceled", func() (archive.Object, error) {
			return archive.NewObject(&flowv1.JobFlow{ObjectMeta: meta("f"), Status: flowv1.JobFlowStatus{
				State: flowv1.State{Phase: flowv1.Failed}, CompletionTime: &ended, FlowConditions: []metav1.Condition{{Type: "Failed", Status: "True", Reason: "Canceled"}},
			}}, nil)
		}, archive.Object{Kind: archive.JobFlow, Template: "f", Phase: "Failed", Reason: "Canceled", Outcome: archive.Failed, Changed: end.Time, Finished: end.Time}, "JobFlow"},
		{"a job of pods", func() (archive.Object, error) {
			return archive.NewObject(&batchv1.Job{ObjectMeta: ofFlow(meta("f-train"), "train"), Status: batchv1.JobStatus{
				State: batchv1.JobState{Phase: batchv1.JobTerminated, LastTransitionTime: ended},
			}}, nil)
		}, archive.Object{Kind: archive.VCJob, Owner: "u-f", Template: "train", Step: "train", Phase: "Terminated", Outcome: archive.Canceled, Changed: end.Time, Finished: end.Time}, "Job"},
		{"a robot, by both kinds of labels", func() (archive.Object, error) {
			return archive.NewObject(&v1alpha1.Robot{ObjectMeta: meta("r1"), Spec: v1alpha1.RobotSpec{Labels: map[string]string{"env": "prod"}}, Status: v1alpha1.RobotStatus{Phase: "Online"}}, nil)
		}, archive.Object{Kind: archive.Robot, Template: "r1", Robot: "r1", Phase: "Online", Labels: map[string]string{"a": "b", "env": "prod"}}, "Robot"},
	} {
		got, err := c.got()
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Kind, APIVersion string
			Metadata         map[string]any
		}
		if err := json.Unmarshal(got.Manifest, &m); err != nil || m.Kind != c.kind || m.APIVersion == "" || m.Metadata["managedFields"] != nil {
			t.Errorf("%s: its manifest is %s, %v", c.name, got.Manifest, err)
		}
		c.want.Namespace, c.want.Name, c.want.UID, c.want.Version, c.want.Created = "hall", got.Name, "u-1", 42, noon
		if c.want.Labels == nil {
			c.want.Labels = map[string]string{"a": "b"}
		}
		got.Manifest = nil
		if asJSON(t, got) != asJSON(t, c.want) {
			t.Errorf("%s: it is\n%s\nwant\n%s", c.name, asJSON(t, got), asJSON(t, c.want))
		}
	}
}

func TestNewObject_RejectsUnknownKinds(t *testing.T) {
	odd := meta("j")
	odd.ResourceVersion = "v1"
	if _, err := archive.NewObject(&v1alpha1.Job{ObjectMeta: odd}, nil); err == nil || !strings.Contains(err.Error(), `resourceVersion "v1" is not a number`) {
		t.Errorf("error %v", err)
	}
	if _, err := archive.NewObject(&v1alpha1.JobTemplate{}, nil); err == nil || !strings.Contains(err.Error(), "no kind that is archived") {
		t.Errorf("error %v", err)
	}
}

// Private keys are arguments of the plugin ssh.
func TestNewObject_MasksPrivateKeys(t *testing.T) {
	args := []string{"--ssh-private-key=SECRET", "--ssh-port=2222"}
	job := &batchv1.Job{ObjectMeta: meta("j"), Spec: batchv1.JobSpec{Plugins: map[string][]string{"ssh": args}}}
	flow := &flowv1.JobFlow{ObjectMeta: meta("f")}
	patch := &runtime.RawExtension{Raw: []byte(asJSON(t, job.Spec))}
	flow.Spec.Flows = []flowv1.Flow{{Name: "a", Patch: &flowv1.Patch{JobSpec: patch}}}
	for _, get := range []func() (archive.Object, error){
		func() (archive.Object, error) { return archive.NewObject(job, nil) },
		func() (archive.Object, error) { return archive.NewObject(flow, nil) },
	} {
		got, err := get()
		if err != nil {
			t.Fatal(err)
		}
		if text := string(got.Manifest); strings.Contains(text, "SECRET") || !strings.Contains(text, `"--ssh-private-key=(masked)","--ssh-port=2222"`) {
			t.Errorf("the manifest of the %s is %s", got.Kind, text)
		}
	}
	if job.Spec.Plugins["ssh"][0] != "--ssh-private-key=SECRET" {
		t.Error("the object itself has changed")
	}
}
