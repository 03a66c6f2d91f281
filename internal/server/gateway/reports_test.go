package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
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

// While a write is in progress, later reports of the waiting tasks are merged into their writes.
func TestReportWorker_MergesEndIntoPendingStart(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	v, about := newObjectIndex(), map[types.UID]report{}
	for n := range 2 {
		task := atVersion(taskIn(lifecycle.TaskDispatching, 1), uint64(n+1))
		r := reportOf(wire.ReportRunning, "Started", 0)
		r.uid = task.UID
		v.deliverTask(task)
		about[task.UID] = r
	}
	var wrote []string
	q := &reportWriter{
		now: func() time.Time { return clock }, objects: v, onWrite: func(*robotv1.Task) {}, isGone: func() bool { return false },
		sendAck: func(string, wire.TaskAck) {}, m: m, log: logr.Discard(),
	}
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
