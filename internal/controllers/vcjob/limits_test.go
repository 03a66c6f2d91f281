package vcjob

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit/extreme"
)

// maxStatusText is more than any status of a Job needs, and less than the API server stores.
const maxStatusText = 256 << 10

// TestPlan_ExtremeFields sets each field of a Job to 2^31-1 or to 1 MiB: whatever admission lets
// through, a plan is small and the status can be stored.
func TestPlan_ExtremeFields(t *testing.T) {
	newJob := func() *batchv1.Job {
		j := job("Running", 20, 1)
		j.Spec.Plugins = map[string][]string{"svc": nil, "env": nil, "ssh": nil, "tensorflow": nil, "pytorch": nil, "mpi": nil, "ray": {"--head=a"}, "hcclrank": nil}
		j.Status.TaskStatusCount = map[string]batchv1.TaskState{"a": {Phase: map[corev1.PodPhase]int32{corev1.PodRunning: 1}}}
		return j
	}
	for _, c := range extreme.Cases(newJob, func(j *batchv1.Job) any { return &j.Spec }) {
		phases := []batchv1.JobPhase{"Pending", "", "Running", "Restarting", "Completed"}
		if strings.Contains(c.Path, ".template.") {
			phases = phases[:1] // the phase decides whether a template is copied, not how
		}
		for _, phase := range phases {
			j := newJob()
			j.Status.State.Phase = phase
			c.Set(j)
			t.Run(c.Path+"/"+string(phase), func(t *testing.T) { requireSmallPlan(t, j) })
		}
	}
}

func requireSmallPlan(t *testing.T, j *batchv1.Job) {
	t.Helper()
	var actions Actions
	extreme.RequireBounded(t, func() {
		actions = Plan(t0, time.Second, Input{Job: j, LostReplicas: LostReplicas(j, nil, nil)})
	})
	if n := len(actions.CreatePods); n > maxBatch {
		t.Errorf("%d Pods in one plan", n)
	}
	if actions.Status == nil {
		return
	}
	text, err := json.Marshal(actions.Status)
	if err != nil || len(text) > maxStatusText {
		t.Errorf("the status has %d bytes: %v", len(text), err)
	}
}

// TestPlan_TooManyPods fails Jobs beyond the limits with a message that names the field.
func TestPlan_TooManyPods(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*batchv1.Job)
		want string
	}{
		{"a task beyond the limit", func(j *batchv1.Job) { j.Spec.Tasks[0].Replicas = math.MaxInt32 }, "spec.tasks[0].replicas: 2147483647 is more than 100000; divide the Pods among several tasks or Jobs"},
		{"negative replicas", func(j *batchv1.Job) { j.Spec.Tasks[0].Replicas = -1 }, "spec.tasks[0].replicas: -1 is negative; use 0 or more"},
		{"a Job beyond the limit", func(j *batchv1.Job) { j.Spec = *job("", repeat(batchv1.MaxTaskReplicas, 11)...).Spec.DeepCopy() }, "spec.tasks: the Job has 1100000 Pods in total, at most 1000000 are allowed; divide them among several Jobs"},
		{"tasks beyond the limit", func(j *batchv1.Job) { j.Spec.Tasks = make([]batchv1.TaskSpec, batchv1.MaxTasks+1) }, "spec.tasks: 1001 tasks, at most 1000 are allowed; divide them among several Jobs"},
		{"minPartitions beyond 32 bits", func(j *batchv1.Job) {
			j.Spec.Tasks[0].PartitionPolicy = &batchv1.PartitionPolicySpec{PartitionSize: math.MaxInt32, MinPartitions: 3}
		}, "spec.tasks[0].minAvailable: 2147483647 is greater than the replicas of task a (2)"},
		{"a list of hosts that no ConfigMap can hold", func(j *batchv1.Job) {
			j.Spec.Tasks[0].Replicas, j.Spec.Plugins = 100_000, map[string][]string{"svc": nil}
		}, "spec.plugins: the lists of hosts are longer than a ConfigMap or a Secret can be, 1 MiB; use fewer replicas, or omit svc and ssh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := job("Pending", 2)
			c.set(j)
			requireFailed(t, j, c.want)
		})
	}
}

func requireFailed(t *testing.T, j *batchv1.Job, want string) {
	t.Helper()
	actions := Plan(t0, 0, newInput(j))
	switch {
	case actions.Status == nil || actions.Status.State.Phase != batchv1.JobFailed:
		t.Errorf("not failed: %+v", actions.Status)
	case actions.Status.State.Reason != "InvalidSpec" || actions.Status.State.Message != want:
		t.Errorf("%s: %s", actions.Status.State.Reason, actions.Status.State.Message)
	case len(actions.CreatePods) > 0 || len(actions.EnsureObjects) > 0:
		t.Error("something is created for it")
	case actions.Change == nil || actions.Change.To != "Failed":
		t.Error("no Warning event")
	}
}

// TestPlan_LargeJobInBatches creates the Pods of a Job at the limit, a batch at a time.
func TestPlan_LargeJobInBatches(t *testing.T) {
	j := job("Pending", batchv1.MaxTaskReplicas)
	in := newInput(j)
	for _, first := range []int{0, maxBatch} {
		actions := Plan(t0, 0, in)
		if _, index := taskOf(actions.CreatePods[0]); len(actions.CreatePods) != maxBatch || index != first || actions.RequeueAt != t0 {
			t.Fatalf("%d Pods from %d, again at %s", len(actions.CreatePods), index, actions.RequeueAt)
		}
		in.Pods = append(in.Pods, actions.CreatePods...)
	}
}

// TestPlan_LargePodsInBatches bounds the memory of a plan: heavy Pods make smaller batches.
func TestPlan_LargePodsInBatches(t *testing.T) {
	j := job("Pending", 1000)
	for range 10_000 {
		j.Spec.Tasks[0].Template.Spec.Tolerations = append(j.Spec.Tasks[0].Template.Spec.Tolerations, corev1.Toleration{Key: strings.Repeat("x", 64)})
	}
	actions := Plan(t0, 0, newInput(j))
	if n := len(actions.CreatePods); n == 0 || n > 100 || actions.RequeueAt != t0 {
		t.Errorf("%d heavy Pods in one plan, again at %s", n, actions.RequeueAt)
	}
}

func repeat(n int32, times int) []int32 {
	all := make([]int32, times)
	for i := range all {
		all[i] = n
	}
	return all
}

// TestReconcile_TooManyPods writes the phase and a Warning event of a Job beyond the limits, and
// goes on with another Job.
func TestReconcile_TooManyPods(t *testing.T) {
	large, other := job("", math.MaxInt32), job("", 1)
	other.Name, other.UID = "other", "other"
	b := newBench(t, 0, false, large, other)
	for range 3 {
		b.look()
		if _, err := b.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.job().Status.State; s.Phase != batchv1.JobFailed || s.Reason != "InvalidSpec" {
		t.Errorf("state %+v", s)
	}
	if b.made["other-a-0"] != 1 || len(b.made) != 1 {
		t.Errorf("created %v", b.made)
	}
	said := b.c.Recorder.(*events.FakeRecorder).Events
	close(said)
	warned := false
	for e := range said {
		warned = warned || strings.HasPrefix(e, "Warning Failed InvalidSpec: spec.tasks[0].replicas: 2147483647 is more than 100000")
	}
	if !warned {
		t.Error("no Warning event")
	}
}
