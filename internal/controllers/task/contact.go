package task

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/taskstate"
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

// Ages are for how long a task is as it is, as this manager has observed it. No wall clock takes
// part in them. Unless a field says otherwise, it is never longer than the truth.
type Ages struct {
	// Unanswered is how long ago the dispatch was first sent that the robot has not answered in time.
	Unanswered time.Duration
	// Running is the time since the last run of the attempt was reported as started.
	Running time.Duration
	// Stopping is the time since a connected robot was asked to stop the task.
	Stopping time.Duration
}

// Contacts observes when the server writes that a robot was in contact, and what it and the manager
// write about tasks on robots.
type Contacts struct {
	heartbeats *kit.Heartbeats
	robots     kit.Sightings[key, robotContact]
	grants     kit.Sightings[key, grant]
	// unanswered are the tasks whose robot has not answered a dispatch in time.
	unanswered kit.Sightings[types.UID, time.Time]
	running    kit.Sightings[types.UID, start]
	stopping   kit.Sightings[types.UID, time.Time]
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

// start identifies a start of the process of an attempt.
type start struct {
	attempt            int32
	run                int64
	started, restarted time.Time
}

// NewContacts returns Contacts that count with a clock like uptime.OfProcess. Heartbeats has the slices
// of the robots; if nil, there are none.
func NewContacts(uptime func() time.Duration, heartbeats *kit.Heartbeats) *Contacts {
	return &Contacts{
		heartbeats: heartbeats,
		robots:     kit.Sightings[key, robotContact]{Uptime: uptime},
		grants:     kit.Sightings[key, grant]{Uptime: uptime},
		unanswered: kit.Sightings[types.UID, time.Time]{Uptime: uptime},
		running:    kit.Sightings[types.UID, start]{Uptime: uptime},
		stopping:   kit.Sightings[types.UID, time.Time]{Uptime: uptime},
	}
}

// ObserveRobot returns the contact of the robot with this key. R is nil if there is no such object.
func (c *Contacts) ObserveRobot(k key, r *v1alpha1.Robot) Contact {
	if r == nil {
		silence, _ := c.robots.Observe(k, robotContact{})
		return Contact{Silence: silence, Unacknowledged: silence}
	}
	silence, _ := c.robots.Observe(k, robotContact{r.UID, lastSeen(r).UTC()})
	slice, isInSlice := c.heartbeats.ObserveRobot(r)
	if isInSlice {
		silence = min(silence, slice.Silence)
	}
	at := r.Status.AcknowledgedUntil
	switch {
	case isInSlice && slice.HasEntry:
		return Contact{Silence: silence, Unacknowledged: slice.Unacknowledged}
	case at == nil:
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

// ObserveTask returns for how long a Task on a robot is as it is.
func (c *Contacts) ObserveTask(t *v1alpha1.Task) Ages {
	return Ages{Unanswered: c.observeUnanswered(t), Running: c.observeRunning(t), Stopping: c.observeStopping(t)}
}

func (c *Contacts) observeRunning(t *v1alpha1.Task) time.Duration {
	if t.Spec.Timeout.Value() == 0 || t.Status.StartedAt == nil {
		return 0 // nothing depends on it
	}
	s := start{attempt: t.Status.Attempt, run: taskstate.CurrentRun(t), started: t.Status.StartedAt.UTC()}
	if at := t.Status.LastRestartTime; at != nil {
		s.restarted = at.UTC()
	}
	age, _ := c.running.Observe(t.UID, s)
	return age
}

func (c *Contacts) observeStopping(t *v1alpha1.Task) time.Duration {
	a := meta.FindStatusCondition(t.Status.Conditions, ConditionStopping)
	if a == nil || a.Status != metav1.ConditionTrue {
		return 0
	}
	age, _ := c.stopping.Observe(t.UID, a.LastTransitionTime.UTC())
	return age
}

func (c *Contacts) observeUnanswered(t *v1alpha1.Task) time.Duration {
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
	observe := func(r *v1alpha1.Robot) { c.ObserveRobot(client.ObjectKeyFromObject(r), r) }
	forget := func(r *v1alpha1.Robot) { c.ObserveRobot(client.ObjectKeyFromObject(r), nil) }
	return kit.ObserveObjects(mgr, &v1alpha1.Robot{}, observe, forget)
}
