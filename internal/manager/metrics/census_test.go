package metrics

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// sources are the watches of a fake API server.
type sources struct {
	tasks, jobs, robots, flows *fcache.FakeControllerSource
	ctx                        context.Context
}

func (s *sources) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	of := s.tasks
	switch o.(type) {
	case *v1alpha1.Job:
		of = s.jobs
	case *v1alpha1.Robot:
		of = s.robots
	case *flowv1.JobFlow:
		of = s.flows
	}
	informer := toolscache.NewSharedIndexInformer(of, o, 0, nil)
	go informer.RunWithContext(s.ctx)
	return informer, nil
}

// begin runs the collector until stop is called.
func begin(t *testing.T) (s *sources, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s = &sources{fcache.NewFakeControllerSource(), fcache.NewFakeControllerSource(), fcache.NewFakeControllerSource(), fcache.NewFakeControllerSource(), ctx}
	c := &Collector{Informers: s, Flows: true, Now: func() time.Time { return created.Add(3 * time.Second) }}
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(cancel)
	return s, stop
}

var created = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func taskIn(name, state string, attempts ...v1alpha1.TaskAttempt) *v1alpha1.Task {
	return &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created)},
		Status:     v1alpha1.TaskStatus{State: state, Attempts: attempts},
	}
}

func read(t *testing.T, m prometheus.Metric) *dto.Metric {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

func TestCollector_CountsObjectsByState(t *testing.T) {
	s, stop := begin(t)
	in := func(g *prometheus.GaugeVec, word string) float64 {
		return read(t, g.WithLabelValues(word)).GetGauge().GetValue()
	}
	s.tasks.Add(taskIn("a", ""))
	s.tasks.Add(taskIn("b", "running"))
	s.robots.Add(&v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Status: v1alpha1.RobotStatus{Phase: "online"}})
	s.jobs.Add(&v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}, Status: v1alpha1.JobStatus{State: "made up"}})
	s.flows.Add(&flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f"}})
	eventually(t, "all are counted", func() bool {
		return in(tasks, "pending") == 1 && in(tasks, "running") == 1 && in(robots, "Online") == 1 && in(flows, "Pending") == 1
	})
	eventually(t, "an unknown state is counted under the label of other states", func() bool { return in(jobs, otherLabel) == 1 })

	s.tasks.Modify(taskIn("a", "running"))
	eventually(t, "both run", func() bool { return in(tasks, "pending") == 0 && in(tasks, "running") == 2 })
	s.tasks.Delete(taskIn("b", "running"))
	s.tasks.DeleteDropWatch(taskIn("a", "completed")) // the watch breaks, and a list follows
	s.tasks.ResetWatch()
	eventually(t, "none is there", func() bool { return in(tasks, "running") == 0 })

	stop()
	metrics := make(chan prometheus.Metric, 100)
	tasks.Collect(metrics)
	robots.Collect(metrics)
	if n := len(metrics); n > 1 { // the one label value that was read above
		t.Errorf("%d figures are shown by a manager that does not lead", n)
	}
}

func at(after time.Duration) *metav1.MicroTime {
	m := metav1.NewMicroTime(created.Add(after))
	return &m
}

func TestRecordAttempts_CountsEachOnce(t *testing.T) {
	first := func(state string, started, finished *metav1.MicroTime) v1alpha1.TaskAttempt {
		return v1alpha1.TaskAttempt{Attempt: 1, State: state, StartedAt: started, FinishedAt: finished}
	}
	second := v1alpha1.TaskAttempt{Attempt: 2, State: "running", StartedAt: at(2)}
	for _, row := range []struct {
		name    string
		was, is *v1alpha1.Task
		started int
		outcome string
	}{
		{name: "dispatched", was: taskIn("t", "pending"), is: taskIn("t", "dispatching", first("dispatching", nil, nil))},
		{name: "started", was: taskIn("t", "dispatching", first("dispatching", nil, nil)), is: taskIn("t", "running", first("running", at(1), nil)), started: 1},
		{name: "started and ended in one write", was: taskIn("t", "dispatching", first("dispatching", nil, nil)),
			is: taskIn("t", "completed", first("completed", at(1), at(2))), started: 1, outcome: outcomeSucceeded},
		{name: "failed", was: taskIn("t", "running", first("running", at(1), nil)), is: taskIn("t", "exited", first("failed", at(1), at(2))), outcome: outcomeFailed},
		{name: "failed before the robot reported the end", was: taskIn("t", "unknown", first("failed", at(1), nil)), is: taskIn("t", "exited", first("failed", at(1), at(2)))},
		{name: "canceled", was: taskIn("t", "running", first("running", at(1), nil)), is: taskIn("t", "canceled", first("canceled", at(1), at(2))), outcome: outcomeCanceled},
		{name: "a later attempt starts", was: taskIn("t", "dispatching", first("failed", at(1), at(2))), is: taskIn("t", "running", first("failed", at(1), at(2)), second)},
		{name: "the first is not remembered any more", was: taskIn("t", "running", second), is: taskIn("t", "running", second)},
	} {
		t.Run(row.name, func(t *testing.T) {
			counts := func() (uint64, map[string]float64) {
				by := map[string]float64{}
				for _, o := range []string{outcomeSucceeded, outcomeFailed, outcomeCanceled} {
					by[o] = read(t, attempts.WithLabelValues(o)).GetCounter().GetValue()
				}
				return read(t, startSeconds).GetHistogram().GetSampleCount(), by
			}
			started, before := counts()
			recordAttempts(row.was, row.is, created.Add(time.Second))
			nowStarted, after := counts()
			if n := int(nowStarted - started); n != row.started {
				t.Errorf("%d starts, want %d", n, row.started)
			}
			for o, n := range after {
				want := 0.0
				if o == row.outcome {
					want = 1
				}
				if n-before[o] != want {
					t.Errorf("%s counted %v times, want %v", o, n-before[o], want)
				}
			}
		})
	}
}
