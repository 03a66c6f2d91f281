package job

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

func (c *Controller) writeStatus(ctx context.Context, j *v1alpha1.Job, actions Actions) error {
	if actions.Status == nil {
		return nil
	}
	j.Status = *actions.Status
	if written, err := c.expect.UpdateStatus(ctx, c, j); !written {
		return err
	}
	c.updateMemory(j, func(m *memory) { m.lastStatus = c.Now() })
	c.recordEvents(j, actions)
	return nil
}

// ReasonActionRejected is the reason of the event about a requeue that is not possible.
const ReasonActionRejected = "ActionRejected"

// recordEvents records events for a status that was written. The end of the job is one. Other changes
// of its state are not: each event costs a write and an object, and repeats what status says.
func (c *Controller) recordEvents(j *v1alpha1.Job, actions Actions) {
	for _, change := range actions.Changes {
		if !change.To.IsTerminal() {
			continue
		}
		kind := corev1.EventTypeNormal
		if change.To == lifecycle.JobFailed {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(j, nil, kind, taskcounts.StateReason(change.To), "Run", "%s", change.Why)
	}
	if actions.Rejected != "" {
		c.Recorder.Eventf(j, nil, corev1.EventTypeWarning, ReasonActionRejected, "Requeue", "%s", actions.Rejected)
	}
}
