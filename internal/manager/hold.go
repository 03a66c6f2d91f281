package manager

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/robotidentity"
	"k8s4r.io/k8s4r/internal/platform/restore"
)

// holdUntilReported returns a manager with which a controller starts only when the gate is open. The
// state before that is as old as the backup: a controller would end attempts for a timeout that has
// passed since, and place tasks that robots run. Robots must be able to connect meanwhile.
func holdUntilReported(mgr ctrl.Manager, controller string, gate *restore.Gate) ctrl.Manager {
	if gate.IsOpen() || controller == robot.Name || controller == robotidentity.Name {
		return mgr
	}
	return holdingManager{mgr, gate.Opened()}
}

type holdingManager struct {
	ctrl.Manager
	opened <-chan struct{}
}

// Add implements ctrl.Manager. Caches decide nothing, and start at once.
func (m holdingManager) Add(r manager.Runnable) error {
	if _, isCache := r.(interface{ GetCache() cache.Cache }); isCache {
		return m.Manager.Add(r)
	}
	return m.Manager.Add(heldRunnable{r, m.opened})
}

// heldRunnable is a runnable that starts when the gate is open.
type heldRunnable struct {
	manager.Runnable
	opened <-chan struct{}
}

// Start implements manager.Runnable.
func (h heldRunnable) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-h.opened:
		return h.Runnable.Start(ctx)
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable, with the runnable's own answer.
func (h heldRunnable) NeedLeaderElection() bool {
	r, ok := h.Runnable.(manager.LeaderElectionRunnable)
	return !ok || r.NeedLeaderElection()
}
