package kit

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// RobotChanges counts relevant changes of robots by the namespaces that may use them, so that a controller
// lists robots only after one of them has changed.
type RobotChanges struct {
	mu    sync.Mutex // guards count
	count map[string]int
}

// NewRobotChanges returns counts of no changes.
func NewRobotChanges() *RobotChanges { return &RobotChanges{count: map[string]int{}} }

// Count returns the number of changes of robots that a namespace may use.
func (n *RobotChanges) Count(namespace string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[namespace]
}

func (n *RobotChanges) recordChange(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count[namespace]++
}

// Handler counts changes, and then calls enqueue for each namespace that may use the robot. It ignores
// heartbeats.
func (n *RobotChanges) Handler(enqueue func(context.Context, string, queue)) handler.EventHandler {
	changed := func(ctx context.Context, users []string, q queue) {
		for _, namespace := range users {
			n.recordChange(namespace)
			enqueue(ctx, namespace, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			changed(ctx, e.Object.(*v1alpha1.Robot).UserNamespaces(), q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			changed(ctx, e.Object.(*v1alpha1.Robot).UserNamespaces(), q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Robot), e.ObjectNew.(*v1alpha1.Robot)
			if !apiconv.IsSameRobot(before, after) {
				users := slices.Concat(before.UserNamespaces(), after.UserNamespaces())
				slices.Sort(users)
				changed(ctx, slices.Compact(users), q)
			}
		},
	}
}
