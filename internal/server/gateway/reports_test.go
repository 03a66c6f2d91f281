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
	queue := make(chan report, 4)
	var wrote []string
	q := &reportWriter{
		now: func() time.Time { return clock }, objects: v, onWrite: func(*robotv1.Task) {}, isGone: func() bool { return false },
		sendAck: func(string, wire.TaskAck) {}, m: m, log: logr.Discard(),
	}
	q.writer = slowWriter{during: func(task *robotv1.Task) {
		wrote = append(wrote, task.Status.State)
		delete(about, task.UID)
		for uid := range about { // the other task ends
			end := reportOf(wire.ReportCompleted, "Completed", 0)
			end.uid = uid
			queue <- end
		}
	}}
	w := &reportWorker{reportWriter: q, queue: queue, waiting: map[types.UID]*batch{}}
	for _, r := range about {
		w.addToBatch(r)
	}
	w.writeDue(t.Context())
	if len(wrote) != 2 || wrote[0] != wire.ReportRunning || wrote[1] != wire.ReportCompleted {
		t.Errorf("wrote %v, want a start, and an end with the start of the other", wrote)
	}
}
