package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// arrayScript fails for index 17, unless it is run again.
const arrayScript = `echo "I am $K8S4R_TASK_INDEX"; [ $K8S4R_TASK_INDEX != 17 ] || [ $K8S4R_ATTEMPT != 1 ]`

// TestArray_RunsEachIndexOnce runs an array on two robots. The index that fails once runs again as a task
// of its own.
func TestArray_RunsEachIndexOnce(t *testing.T) {
	t.Parallel()
	const size = 200
	up := testkit.StartUp(t, "--robots=2")
	if out, err := up.RunProgram("k8s4r", "run", "--name=sweep", "--array=0-199", "--", "/bin/sh", "-c", arrayScript); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := testkit.NewClient(t, up.RESTConfig())
	var job robotv1.Job
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "sweep"}, &job); err != nil {
		t.Fatal(err)
	}
	if s := job.Status; s.State != "completed" || s.TotalTasks != size || s.SucceededTasks != size {
		t.Errorf("the job is %s: %d of %d succeeded", s.State, s.SucceededTasks, s.TotalTasks)
	}
	for index, want := range map[string]string{"17": "I am 17\n", "18": "I am 18\n"} {
		out, err := up.RunProgram("k8s4r", "logs", "--job=sweep", "--index="+index)
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "I am 19") {
			t.Errorf("log of %s: %v\n%s", index, err, out)
		}
	}
	if out, err := up.RunProgram("k8s4r", "get", "tasks", "--job=sweep", "--index=18"); err != nil || !strings.Contains(out, "completed") {
		t.Errorf("%v\n%s", err, out)
	}
	if runs, own := countTasks(t, c); runs != size || own != 1 {
		t.Errorf("the ranges ran %d indexes, and %d have tasks of their own, want %d and 1", runs, own, size)
	}
}

// countTasks returns how many indexes the ranges have run, and how many indexes have tasks of their own.
func countTasks(t *testing.T, c client.Client) (runs, own int) {
	t.Helper()
	var tasks robotv1.TaskList
	if err := c.List(t.Context(), &tasks); err != nil {
		t.Fatal(err)
	}
	for i := range tasks.Items {
		task := &tasks.Items[i]
		if !task.IsRange() {
			own++
			continue
		}
		for _, d := range task.Status.Array.Durations {
			for _, n := range d.Counts {
				runs += int(n)
			}
		}
	}
	return runs, own
}
