package bridge

import (
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// quietLink is a downlink whose robot never answers, and how often it sent.
func quietLink() (*downlink, *view, *int) {
	sent, v := 0, newView()
	d := &downlink{
		now: func() time.Time { return clock }, view: v, dialect: func(string) string { return robotv1.ProtocolK8s4r },
		epoch: func(*robotv1.Task) uint64 { return 1 }, up: func() int64 { return 1 }, pause: repeatFirst,
		publish: func(int64, string, wire.Kind, []byte, bool) bool { sent++; return true },
	}
	d.init()
	return d, v, &sent
}

func TestNewsThatComeInTheWrongOrder(t *testing.T) {
	t.Run("our own write, told late, does not take back a dispatch", func(t *testing.T) {
		d, v, sent := quietLink()
		ended := at(taskIn(lifecycle.TaskExited, 1), 7)
		again := at(taskIn(lifecycle.TaskDispatching, 2), 9)
		again.UID = ended.UID
		v.deliverTask(ended)
		v.deliverTask(again)
		d.changed(again.UID)
		d.changed(ended.UID) // of the older version
		if !d.fireOne() || *sent != 1 {
			t.Errorf("sent %d times", *sent)
		}
	})
	t.Run("a task that is gone is not remembered", func(t *testing.T) {
		d, v, _ := quietLink()
		task := at(taskIn(lifecycle.TaskDispatching, 1), 7)
		v.deliverTask(task)
		v.removeTask(task)
		d.removed(task)
		d.changed(task.UID)
		if len(d.items) != 0 {
			t.Errorf("%d items", len(d.items))
		}
	})
}
