package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/platform/restore"
)

// keepingManager keeps what is added.
type keepingManager struct {
	ctrl.Manager
	added []manager.Runnable
}

func (m *keepingManager) Add(r manager.Runnable) error { m.added = append(m.added, r); return nil }

var errStarted = errors.New("started")

func startOf(t *testing.T, controller string, gate *restore.Gate) (started chan error) {
	t.Helper()
	m := &keepingManager{}
	run := manager.RunnableFunc(func(context.Context) error { return errStarted })
	if err := holdUntilReported(m, controller, gate).Add(run); err != nil {
		t.Fatal(err)
	}
	started = make(chan error, 1)
	go func() { started <- m.added[0].Start(t.Context()) }()
	return started
}

// TestControllers_WaitForRobotsAfterARestore shows that only the controllers of robots run before the robots
// have reported what they ran since the restored backup.
func TestControllers_WaitForRobotsAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := restore.ClosedGate(1, func(int32, restore.Summary) error { return nil })
		ofTasks, ofRobots := startOf(t, task.Name, gate), startOf(t, robot.Name, gate)
		synctest.Wait()
		if len(ofTasks) != 0 || len(ofRobots) != 1 {
			t.Fatalf("tasks: %d, robots: %d started", len(ofTasks), len(ofRobots))
		}
		if err := gate.Open(restore.Summary{}); err != nil {
			t.Fatal(err)
		}
		if err := <-ofTasks; !errors.Is(err, errStarted) {
			t.Errorf("%v", err)
		}
		if err := <-startOf(t, task.Name, nil); !errors.Is(err, errStarted) {
			t.Errorf("without a restore: %v", err)
		}
	})
}
