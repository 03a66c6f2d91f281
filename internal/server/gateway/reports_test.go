package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// slowWriter accepts status writes and calls during in each.
type slowWriter struct {
	client.SubResourceWriter
	during func(t *robotv1.Task)
}

func (w slowWriter) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	w.during(o.(*robotv1.Task))
	return nil
}

// takeAll removes and returns all reports that wait.
func (q *reportWriter) takeAll() (all []report) {
	for _, w := range q.workers {
		for b := w.takeNext(q.now().Add(time.Hour), false); b != nil; b = w.takeNext(q.now().Add(time.Hour), false) {
			all = append(all, b.reports...)
		}
	}
	return all
}

// newTestReportWriter returns a writer without tasks, whose writes and acks the caller sets.
func newTestReportWriter(t *testing.T) *reportWriter {
	t.Helper()
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &reportWriter{
		now: func() time.Time { return clock }, objects: newObjectIndex(), onWrite: func(*robotv1.Task) {}, isGone: func() bool { return false },
		sendAck: func(string, wire.TaskAck) {}, m: m, log: logr.Discard(),
	}
}

// sumCounter returns the sum of a counter over all labels.
func sumCounter(t *testing.T, c prometheus.Collector) (sum float64) {
	t.Helper()
	all := make(chan prometheus.Metric, 100)
	c.Collect(all)
	close(all)
	for each := range all {
		var m dto.Metric
		if err := each.Write(&m); err != nil {
			t.Fatal(err)
		}
		sum += m.GetCounter().GetValue()
	}
	return sum
}

// While a write is in progress, later reports of the waiting tasks are merged into their writes.
func TestReportWorker_MergesEndIntoPendingStart(t *testing.T) {
	q, about := newTestReportWriter(t), map[types.UID]report{}
	for n := range 2 {
		task := atVersion(taskIn(lifecycle.TaskDispatching, 1), uint64(n+1))
		r := reportOf(wire.ReportRunning, "Started", 0)
		r.uid = task.UID
		q.objects.deliverTask(task)
		about[task.UID] = r
	}
	var wrote []string
	w := &reportWorker{reportWriter: q, wake: make(chan struct{}, 1), robots: map[string]*robotReports{}}
	q.writer = slowWriter{during: func(task *robotv1.Task) {
		wrote = append(wrote, task.Status.State)
		delete(about, task.UID)
		for uid := range about { // the other task ends
			end := reportOf(wire.ReportCompleted, "Completed", 0)
			end.uid = uid
			w.addReport(end)
		}
	}}
	for _, r := range about {
		w.addReport(r)
	}
	w.writeDue(t.Context())
	if len(wrote) != 2 || wrote[0] != wire.ReportRunning || wrote[1] != wire.ReportCompleted {
		t.Errorf("wrote %v, want a start, and an end with the start of the other", wrote)
	}
}

// Robots repeat what is not acknowledged. That is not illegal, also if the first report still waits.
func TestReportWorker_CountsRepeatedEnds(t *testing.T) {
	for name, row := range map[string]struct {
		reports           [][]report // by write
		compacts          bool       // a limit holds the reports back
		repeated, illegal float64
		acks              int
	}{
		"after the write":         {[][]report{{reportOf("completed", "Completed", 0)}, {reportOf("completed", "Completed", 0)}}, false, 1, 0, 2},
		"before the write":        {[][]report{{reportOf("completed", "Completed", 0), reportOf("completed", "Completed", 0)}}, false, 1, 0, 2},
		"while a limit delays it": {[][]report{{reportOf("completed", "Completed", 0), reportOf("completed", "Completed", 0), reportOf("completed", "Completed", 0)}}, true, 2, 0, 1},
		"of an old attempt":       {[][]report{{withAttempt(0, reportOf("completed", "Completed", 0))}}, false, 0, 0, 1},
		"another end":             {[][]report{{reportOf("completed", "Completed", 0)}, {reportOf("failed", "Exited", 1)}}, false, 0, 1, 2},
		"running after the end":   {[][]report{{reportOf("completed", "Completed", 0)}, {reportOf("running", "Started", 0)}}, false, 0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			q, task := newTestReportWriter(t), atVersion(taskIn(lifecycle.TaskRunning, 1), 1)
			q.objects.deliverTask(task)
			acks, version := 0, uint64(1)
			q.sendAck = func(string, wire.TaskAck) { acks++ }
			q.writer = slowWriter{during: func(t *robotv1.Task) { version++; q.objects.deliverTask(atVersion(t, version)) }}
			for _, reports := range row.reports {
				b := &batch{robot: "r1", uid: task.UID}
				for _, r := range reports {
					r.uid = task.UID
					b.addReport(r, row.compacts)
				}
				(&reportWorker{reportWriter: q}).writeReports(t.Context(), b)
			}
			if got := sumCounter(t, q.m.repeatedReports); got != row.repeated {
				t.Errorf("%v repeated reports, want %v", got, row.repeated)
			}
			if got := sumCounter(t, q.m.illegalTransitions); got != row.illegal {
				t.Errorf("%v illegal transitions, want %v", got, row.illegal)
			}
			if acks != row.acks {
				t.Errorf("%d reports are acknowledged, want %d", acks, row.acks)
			}
		})
	}
}
