package vcjob

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// The Job of a retried step has the name of the previous Job, whose end the flow has
// recorded already.
func TestOnFlow_EnqueuesJobsWithRecordedEnd(t *testing.T) {
	flow := func(uid string, state batchv1.JobPhase) *flowv1.JobFlow {
		f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f"}}
		f.Status.JobStatusList = []flowv1.JobStatus{{Name: "f-a", UID: uid, State: state}}
		return f
	}
	for _, c := range []struct {
		name     string
		old, now *flowv1.JobFlow
		want     int
	}{
		{"it has seen the end", flow("1", batchv1.JobRunning), flow("1", batchv1.JobFailed), 1},
		{"it had seen it before", flow("1", batchv1.JobFailed), flow("1", batchv1.JobFailed), 0},
		{"it had seen that of an earlier one", flow("1", batchv1.JobFailed), flow("2", batchv1.JobFailed), 1},
		{"it runs", flow("1", batchv1.JobRunning), flow("1", batchv1.JobRunning), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			onFlow().Update(t.Context(), event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}, q)
			if q.Len() != c.want {
				t.Errorf("%d Jobs are enqueued, want %d", q.Len(), c.want)
			}
		})
	}
}
