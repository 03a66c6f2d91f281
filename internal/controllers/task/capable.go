package task

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// capable tells whether a robot exists that could ever take the Task, beside
// those that have failed it, the present one among them, and those that its
// group has blocked.
func (c *Controller) capable(ctx context.Context, w *World) (bool, error) {
	var robots v1alpha1.RobotList
	if err := c.List(ctx, &robots, client.InNamespace(w.Task.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list robots: %w", err)
	}
	return len(robots.Items) > 0, nil
}
