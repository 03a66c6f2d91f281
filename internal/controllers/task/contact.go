package task

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// Contact is for how long a robot is out of contact, as this manager has observed it. No wall clock
// takes part in it. It is never longer than the truth.
type Contact struct {
	// Silence is the time since the robot was last known to be connected, or since its object is
	// missing.
	Silence time.Duration
	// Unacknowledged is the time since the last moment at which the robot can have sent a heartbeat
	// that is acknowledged. It is negative while the server may acknowledge more of them.
	Unacknowledged time.Duration
}

// sinceHeartbeat returns the time since which the robot's self-stop deadlines count at the latest.
func (c Contact) sinceHeartbeat() time.Duration { return min(c.Silence, c.Unacknowledged) }

// Contacts observes when the server writes that a robot was in contact.
type Contacts struct {
	robots kit.Sightings[key, robotContact]
	grants kit.Sightings[key, grant]
	// unanswered are the tasks whose robot has not answered a dispatch in time.
	unanswered kit.Sightings[types.UID, time.Time]
}

// robotContact identifies the last contact of a robot. A robot without an object has the zero value.
type robotContact struct {
	uid      types.UID
	lastSeen time.Time
}

// grant identifies the last period for which the server acknowledges a robot's heartbeats.
type grant struct {
	uid   types.UID
	until time.Time
}

// NewContacts returns Contacts that count with a clock like uptime.OfProcess.
func NewContacts(uptime func() time.Duration) *Contacts {
	return &Contacts{
		robots:     kit.Sightings[key, robotContact]{Uptime: uptime},
		grants:     kit.Sightings[key, grant]{Uptime: uptime},
		unanswered: kit.Sightings[types.UID, time.Time]{Uptime: uptime},
	}
}

// ObserveRobot returns the contact of the robot with this key. R is nil if there is no such object.
func (c *Contacts) ObserveRobot(k key, r *v1alpha1.Robot) Contact {
	if r == nil {
		silence, _ := c.robots.Observe(k, robotContact{})
		return Contact{Silence: silence, Unacknowledged: silence}
	}
	silence, _ := c.robots.Observe(k, robotContact{r.UID, lastSeen(r).UTC()})
	at := r.Status.AcknowledgedUntil
	if at == nil {
		return Contact{Silence: silence, Unacknowledged: silence}
	}
	age, _ := c.grants.Observe(k, grant{r.UID, at.UTC()})
	return Contact{Silence: silence, Unacknowledged: age - grantPeriod(r)}
}

// grantPeriod returns for how long after its write the server acknowledges heartbeats. It writes
// both times at once and by one clock.
func grantPeriod(r *v1alpha1.Robot) time.Duration {
	if r.Status.LastHeartbeatTime == nil {
		return 0
	}
	return max(0, r.Status.AcknowledgedUntil.Sub(r.Status.LastHeartbeatTime.Time))
}

// ObserveUnanswered returns how long ago the dispatch was first sent that the Task's robot has not
// answered in time. It is zero if there is none.
func (c *Contacts) ObserveUnanswered(t *v1alpha1.Task) time.Duration {
	a := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionAccepted)
	if a == nil || a.Status != metav1.ConditionFalse {
		return 0
	}
	age, _ := c.unanswered.Observe(t.UID, a.LastTransitionTime.UTC())
	timeout := v1alpha1.DefaultDispatchTimeout
	if d := t.Spec.DispatchTimeout.Value(); d > 0 {
		timeout = d
	}
	return timeout + age // the server writes the condition after the timeout
}

// watchRobots observes each change of a robot when it happens, and not only when a task needs it.
func (c *Contacts) watchRobots(mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.Robot{})
	if err != nil {
		return fmt.Errorf("informer of robots: %w", err)
	}
	observe := func(o any) {
		if r, ok := o.(*v1alpha1.Robot); ok {
			c.ObserveRobot(client.ObjectKeyFromObject(r), r)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    observe,
		UpdateFunc: func(_, o any) { observe(o) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if r, ok := o.(*v1alpha1.Robot); ok {
				c.ObserveRobot(client.ObjectKeyFromObject(r), nil)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch robots: %w", err)
	}
	return nil
}
