package taskgroup

import (
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// ReasonFailedCreate is the reason of the event that tells of a Task that the
// API server does not let the group create.
const ReasonFailedCreate = "FailedCreate"

// maxRetry is how long a group waits at the most before it tries again to
// create what was denied: a quota that is raised says nothing to us.
const maxRetry = 30 * time.Second

// denial is what the API server last said against a Task of the group. Empty:
// nothing since one was created.
type denial struct {
	message string
	times   int
	retry   time.Time
}

// again counts one more denial and tells whether its message is new.
func (d *denial) again(now time.Time, message string) (news bool) {
	news = d.message != message
	d.message = message
	d.retry = now.Add(min(time.Second<<min(d.times, 10), maxRetry))
	d.times++
	return news
}

// denied is the API server's own sentence when it will not take an object, by
// quota, policy, webhook or validation. Empty: it is something that passes.
func denied(err error) string {
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

// deny remembers a denial and tells people of it, once for each message. The
// seats go back: others can use them meanwhile.
func (c *Controller) deny(g *v1alpha1.TaskGroup, message string) {
	c.Binder.Forget(g.Namespace, g.Name)
	var news bool
	c.tally.with(g.UID, func(m *members) { news = m.denial.again(c.Now(), message) })
	if news {
		c.Recorder.Eventf(g, nil, corev1.EventTypeWarning, ReasonFailedCreate, "Create", "%s", message)
	}
}
