package taskgroup

import (
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// ReasonFailedCreate is the reason of the event about a Task that the API server rejects.
const ReasonFailedCreate = "FailedCreate"

// maxRetry bounds the delay before a rejected create is retried. There is no event when a
// quota is raised.
const maxRetry = 30 * time.Second

// denial is the last rejection of a Task by the API server. It is reset when a Task is
// created.
type denial struct {
	message string    // of the API server; empty: no rejection
	times   int       // consecutive rejections
	retry   time.Time // when to try again
}

// countDenial counts another rejection and reports whether its message is new.
func (d *denial) countDenial(now time.Time, message string) (isNew bool) {
	isNew = d.message != message
	d.message = message
	d.retry = now.Add(min(time.Second<<min(d.times, 10), maxRetry))
	d.times++
	return isNew
}

// denialMessage returns the API server's message if it rejected an object by quota,
// policy, webhook or validation, and "" for transient errors.
func denialMessage(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) {
		return ""
	}
	code := status.ErrStatus.Code
	if code >= http.StatusBadRequest && code < http.StatusInternalServerError || apierrors.IsInternalError(err) {
		return status.ErrStatus.Message
	}
	return ""
}

// recordDenial records a rejection and emits an event, once for each message. It releases
// the reservations so that other groups can use them.
func (c *Controller) recordDenial(g *v1alpha1.TaskGroup, message string) {
	c.Binder.ForgetGroup(g.Namespace, g.Name)
	var isNew bool
	c.counts.withGroup(g.UID, func(m *groupTasks) { isNew = m.denial.countDenial(c.Now(), message) })
	if isNew {
		c.Recorder.Eventf(g, nil, corev1.EventTypeWarning, ReasonFailedCreate, "Create", "%s", message)
	}
}
