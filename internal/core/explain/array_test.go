package explain_test

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/explain"
)

// arrayOfTen is a group of the indexes 0 to 9, in one range with this status, if it is not nil.
func arrayOfTen(status *robotv1.TaskStatus, own ...*robotv1.Task) ([]*robotv1.TaskGroup, []*robotv1.Task) {
	g := &robotv1.TaskGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo-scan"}}
	g.Spec.JobName, g.Spec.Tasks = "demo", []robotv1.TaskDefinition{{Name: "main"}}
	g.Spec.Array = &robotv1.Array{Size: 10, RangeSize: 10}
	if status != nil {
		r := task("demo-scan-0-main")
		r.Spec.TaskGroupName, r.Spec.TargetRobot, r.Spec.Array, r.Status = g.Name, "rover-1", &robotv1.TaskArray{Indexes: "0-9"}, *status
		own = append(own, r)
	}
	return []*robotv1.TaskGroup{g}, own
}

func ownTask(t *robotv1.Task) {
	t.Spec.TaskGroupName, t.Spec.Array = "demo-scan", &robotv1.TaskArray{Index: new(int32(5))}
}

func TestExplainIndex(t *testing.T) {
	const rangeText = "demo-scan-0-main with indexes 0-9 is running on rover-1: 2 of 10 succeeded, 1 failed (2)"
	running := func() *robotv1.TaskStatus {
		return &robotv1.TaskStatus{
			State: "running", Attempt: 1, Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: "rover-1"}},
			Array: &robotv1.TaskArrayStatus{Succeeded: "0-1", Failed: "2", Failures: []robotv1.IndexFailure{{Index: 2, Robot: "rover-1", ExitCode: new(int32(3))}}},
		}
	}
	for _, c := range []struct {
		name    string
		status  *robotv1.TaskStatus
		own     []*robotv1.Task
		job     string
		index   int32
		state   string
		summary string
		wants   explain.Fact
	}{
		{"succeeded", running(), nil, "running", 1, "completed", "it succeeded", explain.Fact{Name: "range", Text: rangeText}},
		{"failed, in a running job", running(), nil, "running", 2, "soft-failed", "it failed, and gets a Task of its own, which runs it again", explain.Fact{Name: "range", Text: rangeText}},
		{"failed, in a job that ended", running(), nil, "completed", 2, "failed", "attempt 1 on rover-1 ended with exit code 3", explain.Fact{Name: "range", Text: rangeText}},
		{"next", running(), nil, "running", 3, "running", "its robot runs it", explain.Fact{Name: "robot", Text: "rover-1"}},
		{"in line", running(), nil, "running", 8, "pending", "it waits for its turn: its range has 5 indexes without an end before it", explain.Fact{Name: "range", Text: rangeText}},
		{"without a range", nil, nil, "running", 8, "pending", "its range has no Task yet", explain.Fact{Name: "job", Text: "demo is running"}},
		{"with a Task", running(), []*robotv1.Task{task("demo-scan-index-5-main", ownTask, in("soft-failed"))}, "running", 5, "soft-failed", "it failed, and waits for another robot", explain.Fact{Name: "range", Text: rangeText}},
		{"range waits", &robotv1.TaskStatus{Reason: "NoFit"}, nil, "running", 5, "pending", "it waits for a robot", explain.Fact{Name: "reason", Text: "NoFit"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups, tasks := arrayOfTen(c.status, c.own...)
			v := array.FindIndex(groups, tasks, c.index)[0]
			got, err := explain.ExplainIndex(context.Background(), arrayAround{job: job(c.job, "")}, v, noon)
			if err != nil || got.State != c.state || got.Summary != c.summary || !slices.Contains(got.Facts, c.wants) || c.status == nil && fact(got, explain.Placement) != "" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// arrayAround is a Source with only a job.
type arrayAround struct {
	around
	job *robotv1.Job
}

func (a arrayAround) Job(context.Context, string, string) (*robotv1.Job, error) { return a.job, nil }

func (a arrayAround) Group(context.Context, string, string) (*robotv1.TaskGroup, error) {
	return nil, nil
}
