package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Duration is a length of time such as "90s", "1h30m" or "250ms".
//
// It is text, not a number that is parsed on reading, so that one object with
// a bad value cannot keep a controller from reading all the others.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`
// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a length of time such as 90s, 5m or 1h30m"
type Duration string

// Value is the length of time. A nil, empty or unreadable one is zero.
func (d *Duration) Value() time.Duration {
	if d == nil {
		return 0
	}
	v, err := time.ParseDuration(string(*d))
	if err != nil || v < 0 {
		return 0
	}
	return v
}

// NewDuration writes d as a Duration.
func NewDuration(d time.Duration) *Duration {
	s := Duration(d.String())
	return &s
}

// The labels that a TaskGroup and its Tasks carry.
const (
	// LabelJob is the name of the Job.
	LabelJob = "job"
	// LabelTaskGroup is the name of the TaskGroup object.
	LabelTaskGroup = "taskgroup"
	// LabelTaskIndex is the number of the replica, from 0.
	LabelTaskIndex = "taskindex"
	// LabelRevision is what a Task takes from its TaskGroup, as a hash. It is not
	// that of the group's status while the Task is of an older definition.
	LabelRevision = "robot.k8s4r.io/revision"
)

// KeptRunning tells whether tasks of this type run again whenever they end, and
// a Job of it has no end of its own.
func KeptRunning(jobType string) bool {
	return jobType == JobTypeService || jobType == JobTypeSystem
}

// FinalizerRobotTold holds a Task until the robot that runs it was told to
// stop it. Only Tasks on a document agent's robot carry it: ours learn the
// same from the next list.
const FinalizerRobotTold = "robot.k8s4r.io/robot-told"

// ReasonInitTaskFailed is the status.reason of a Task that has failed because an init
// task before it has.
const ReasonInitTaskFailed = "InitTaskFailed"

// ReasonStopping is the status.reason of a Task that keeps its state while its
// robot is asked to stop it. The server sends the robot a delete for it.
const ReasonStopping = "Stopping"

// ReasonEvicting is the status.reason of a Task that keeps its state while its
// robot is asked to stop it, so that it can run again elsewhere.
const ReasonEvicting = "Evicting"

// AskedToStop tells whether the task's robot is asked to stop it, for good or
// for another one.
func (s *TaskStatus) AskedToStop() bool {
	return s.Reason == ReasonStopping || s.Reason == ReasonEvicting
}

// Entry is the history's word about an attempt. Nil: it has none.
func (s *TaskStatus) Entry(attempt int32) *TaskAttempt {
	for i := range s.Attempts {
		if s.Attempts[i].Attempt == attempt {
			return &s.Attempts[i]
		}
	}
	return nil
}

// RobotOfAttempt is the robot that the attempt that counts was given to. Between
// the two writes that hand a task on spec.targetRobot may name another one.
func (t *Task) RobotOfAttempt() string {
	if a := t.Status.Entry(t.Status.Attempt); a != nil && a.Robot != "" {
		return a.Robot
	}
	return t.Spec.TargetRobot
}

// The status.reason of a Task that follows its Job: it was called off, or its operator wished
// so. The message is the Job's.
const (
	ReasonCanceled = "Canceled"
	ReasonPaused   = "Paused"
	ReasonResumed  = "Resumed"
	ReasonRequeued = "Requeued"
)

// The condition types of Jobs and TaskGroups, as batch/v1 has them.
const (
	ConditionComplete  = "Complete"
	ConditionFailed    = "Failed"
	ConditionSuspended = "Suspended"
)

// ConditionArchived is the condition of a Job that has ended, where the manager keeps an
// archive: whether its end is in it, with its groups and tasks. Written by the archive
// controller; its observedGeneration is the status's as it was recorded.
const ConditionArchived = "Archived"

// Archived tells whether the end that the status tells of is in the archive. That of an
// earlier run, before a requeue, does not count.
func (s *JobStatus) Archived() bool {
	c := meta.FindStatusCondition(s.Conditions, ConditionArchived)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.ObservedGeneration
}

// ConditionRolledOver is the condition of a TaskGroup whose definition was
// changed: whether all of its Tasks that have not ended are of the new one.
const ConditionRolledOver = "RolledOver"

// The condition types of Tasks.
const (
	// ConditionPlaced is written by the manager: whether the Task has a robot,
	// and if not, which check refused which robots.
	ConditionPlaced = "Placed"
	// ConditionSecretsReady is written by the server: False while the Task is not
	// sent to its robot because a value of its secretEnv cannot be had. The robot's
	// next word takes it away.
	ConditionSecretsReady = "SecretsReady"
)

// The condition types of Robots.
const (
	// ConditionConnected is written by the server: whether the robot's
	// connection stands, as far as is known.
	ConditionConnected = "Connected"
	// ConditionResponsive is written by the server: whether the robot answers
	// what is dispatched to it.
	ConditionResponsive = "Responsive"
	// ConditionApproved is written by the manager: whether the robot may be
	// given work.
	ConditionApproved = "Approved"
)

// The reasons of ConditionConnected.
const (
	// ReasonHeard: the robot speaks to the server.
	ReasonHeard = "Heard"
	// ReasonLastWill: its connection broke, at the time of the transition.
	ReasonLastWill = "LastWill"
	// ReasonSignedOff: it said goodbye, at the time of the transition.
	ReasonSignedOff = "SignedOff"
	// ReasonSilent: nothing came from it for as long as it may be silent before
	// it is offline. The time of the transition is that much too late to say
	// when it was in contact; lastHeartbeatTime says it.
	ReasonSilent = "Silent"
)

// The wishes in a Job's spec.desiredState.
const (
	DesiredRunning  = "running"
	DesiredPaused   = "paused"
	DesiredCanceled = "canceled"
)

// The scopes of a Job's spec.requeue.
const (
	RequeueAll    = "all"
	RequeueFailed = "failed"
)

// The modes of a restartPolicy whose attempts are used up: hand the task on to
// its reschedulePolicy, or wait for the next interval.
const (
	RestartFail  = "fail"
	RestartDelay = "delay"
)

// The growth of a reschedulePolicy's delay. Exponential is the default.
const (
	DelayConstant    = "constant"
	DelayExponential = "exponential"
	DelayFibonacci   = "fibonacci"
)
