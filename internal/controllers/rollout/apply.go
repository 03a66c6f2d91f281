package rollout

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// apply writes the status, and then the events about it.
func (c *Controller) apply(ctx context.Context, r *v1alpha1.Rollout, actions Actions) error {
	if actions.Status == nil {
		return nil
	}
	r.Status = *actions.Status
	if written, err := c.expect.UpdateStatus(ctx, c, r); !written {
		return err
	}
	ctrl.LoggerFrom(ctx).V(1).Info("Wrote status", "phase", r.Status.Phase, "message", r.Status.Message)
	c.memory.Update(client.ObjectKeyFromObject(r), r.UID, func(m *memory) { m.lastStatus = c.Now() })
	for _, e := range actions.Events {
		kind := corev1.EventTypeNormal
		if e.IsWarning {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(r, nil, kind, e.Reason, "Rollout", "%s", e.Message)
	}
	return nil
}
