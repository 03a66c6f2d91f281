package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Duration is a length of time such as "90s", "1h30m" or "250ms".
//
// It is stored as text, so that an object with a value that cannot be parsed does not prevent a
// controller from reading all the others. The rule limits the digits of each unit, because CEL
// reports an overflow in its own words.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="size(self) > 0 && self.matches('^([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?$') && (duration(self) == duration('0s') || duration(self) >= duration('1ms'))",message="must be a duration such as 90s, 5m or 1h30m: 0s, or from 1ms to 999999h, with the largest unit first"
type Duration string

// Value returns the length of time. If d is nil, empty, negative or cannot be parsed, it is zero.
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

// NewDuration returns d as a Duration.
func NewDuration(d time.Duration) *Duration {
	s := Duration(d.String())
	return &s
}

// The labels of TaskGroups and Tasks. The manager sets each of the first three in two forms: with
// the prefix robot.k8s4r.io/, and without it, as legacy agents and older manifests use it. A
// label's value is shortened and ends in a hash if the name is longer than 63 characters.
const (
	// LabelJob is the label, without prefix, of the name of the Job.
	LabelJob = "job"
	// LabelTaskGroup is the label, without prefix, of the name of the TaskGroup object.
	LabelTaskGroup = "taskgroup"
	// LabelTaskIndex is the label, without prefix, of the index of the replica, from 0.
	LabelTaskIndex = "taskindex"

	// LabelPrefixedJob is LabelJob with the prefix.
	LabelPrefixedJob = "robot.k8s4r.io/job"
	// LabelPrefixedTaskGroup is LabelTaskGroup with the prefix.
	LabelPrefixedTaskGroup = "robot.k8s4r.io/taskgroup"
	// LabelPrefixedTaskIndex is LabelTaskIndex with the prefix.
	LabelPrefixedTaskIndex = "robot.k8s4r.io/taskindex"
	// LabelRevision is the label of a Task that has a hash of what it takes over from its
	// TaskGroup. It differs from the group's status.revisions while the Task is outdated.
	LabelRevision = "robot.k8s4r.io/revision"
	// LabelArrayIndex is the label, of a Task that runs one index of an array, of that index.
	LabelArrayIndex = "robot.k8s4r.io/arrayindex"
)

// AnnotationRevisedAt is the annotation of a Task of a Job with update.strategy Rollout that has the time
// (RFC 3339) at which the Task got its revision. Without it, the Task has it since its creation. Written by
// the manager.
const AnnotationRevisedAt = "robot.k8s4r.io/revised-at"

// IsKeptRunning reports whether tasks of this type run again whenever they end. A Job of such a
// type does not end by itself.
func IsKeptRunning(jobType string) bool {
	return jobType == JobTypeService || jobType == JobTypeSystem
}

// RunsOnEveryRobot reports whether a Job of this type has one replica of each group on every matching
// robot, instead of count.
func RunsOnEveryRobot(jobType string) bool {
	return jobType == JobTypeSystem || jobType == JobTypeSysbatch
}

// FinalizerRobotNotified keeps a deleted Task until its robot was notified to stop it. Only Tasks
// on robots with a legacy agent have it: other agents learn it from the next task list.
const FinalizerRobotNotified = "robot.k8s4r.io/robot-notified"

// ReasonInitTaskFailed is the status.reason of a Task that failed because an init task before it
// failed.
const ReasonInitTaskFailed = "InitTaskFailed"

// ReasonStopping is the status.reason of a Task that is being stopped and will not run again. Its state changes
// when the robot reports the end.
const ReasonStopping = "Stopping"

// ReasonEvicting is the status.reason of a Task that is being stopped to run again elsewhere. Its
// state changes when the robot reports the end.
const ReasonEvicting = "Evicting"

// The values of a Task's spec.evictionWaitsFor.
const (
	// EvictionWaitsForHolds lets an eviction wait for holds of people at the robot.
	EvictionWaitsForHolds = "Holds"
	// EvictionWaitsForWindows lets an eviction wait for holds and for maintenance windows.
	EvictionWaitsForWindows = "HoldsAndWindows"
)

// ReasonInterruptionWithdrawn is the reason of the event and of condition Stopping of a Task whose eviction
// was withdrawn, because of a hold at its robot or of a closed maintenance window. The task runs on.
const ReasonInterruptionWithdrawn = "InterruptionWithdrawn"

// ReasonDispatchTimeout is the status.reason of an unknown Task whose robot is connected and has
// not answered the dispatch within disconnect.dispatchTimeout. The robot must not start it.
const ReasonDispatchTimeout = "DispatchTimeout"

// IsStopRequested reports whether the robot must stop the task, finally or to run it elsewhere.
func (s *TaskStatus) IsStopRequested() bool {
	return s.Reason == ReasonStopping || s.Reason == ReasonEvicting || s.IsDispatchTimedOut()
}

// IsInterruption reports whether the robot is asked to stop the current attempt, and may refuse.
func (s *TaskStatus) IsInterruption() bool {
	i := s.Interruption
	return s.Reason == ReasonEvicting && i != nil && i.Attempt == s.Attempt && i.WithdrawnAt == nil
}

// InterruptionPause is how long a task is not asked to be interrupted again after its robot has refused that.
const InterruptionPause = 30 * time.Second

// NextInterruption returns the earliest time at which the current attempt may be interrupted again after an
// order was withdrawn. Zero: at any time.
func (s *TaskStatus) NextInterruption() time.Time {
	i := s.Interruption
	if i == nil || i.Attempt != s.Attempt || i.WithdrawnAt == nil {
		return time.Time{}
	}
	return i.WithdrawnAt.Add(InterruptionPause)
}

// IsDispatchTimedOut reports whether the task waits for a connected robot that has not answered
// its dispatch in time.
func (s *TaskStatus) IsDispatchTimedOut() bool {
	return s.State == "unknown" && s.Reason == ReasonDispatchTimeout
}

// DefaultDispatchTimeout is the dispatch timeout of Tasks that set none.
const DefaultDispatchTimeout = time.Minute

// FindAttempt returns the entry of an attempt in status.attempts, or nil.
func (s *TaskStatus) FindAttempt(attempt int32) *TaskAttempt {
	for i := range s.Attempts {
		if s.Attempts[i].Attempt == attempt {
			return &s.Attempts[i]
		}
	}
	return nil
}

// CurrentRobot returns the robot of the current attempt. It may differ from spec.targetRobot
// between the two writes that move a task to another robot.
func (t *Task) CurrentRobot() string {
	if a := t.Status.FindAttempt(t.Status.Attempt); a != nil && a.Robot != "" {
		return a.Robot
	}
	return t.Spec.TargetRobot
}

// The status.reason of a Task whose state follows that of its Job. The message is the Job's.
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

// ConditionArchived of an ended Job reports whether it is recorded in the archive with its groups
// and tasks. Its observedGeneration is that of the recorded status. Written by the archive
// controller.
const ConditionArchived = "Archived"

// IsArchived reports whether the current end of the job is in the archive. The end before a
// requeue does not count.
func (s *JobStatus) IsArchived() bool {
	c := meta.FindStatusCondition(s.Conditions, ConditionArchived)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.ObservedGeneration
}

// HasUnobservedChange reports whether the spec of the group was changed and its controller has not
// observed the change yet. A group without a status was not changed before its second generation.
func (g *TaskGroup) HasUnobservedChange() bool {
	return max(g.Status.ObservedGeneration, 1) < g.Generation
}

// ConditionRolledOut of a TaskGroup whose definition was changed reports whether all Tasks that
// have not ended have the new definition.
const ConditionRolledOut = "RolledOut"

// The condition types of Tasks.
const (
	// ConditionPlaced reports whether the Task has a robot, and if not, which checks rejected
	// which robots. Written by the manager.
	ConditionPlaced = "Placed"
	// ConditionSecretsReady is False while the Task is not sent to its robot because a value of
	// secretEnv cannot be read. It is removed when they are sent. Written by the server.
	ConditionSecretsReady = "SecretsReady"
	// ConditionAccepted of a Task that does not run yet: True if its robot has accepted the
	// attempt at least 10 s ago, False if the connected robot has not answered the dispatch within
	// dispatchTimeout. The transition is the answer, or the first dispatch. Tasks that start sooner
	// never have it, and it is removed when the attempt starts or ends. Written by the server.
	ConditionAccepted = "Accepted"
)

// The reasons of ConditionAccepted.
const (
	// ReasonJournaled: the robot has recorded the attempt and is preparing it.
	ReasonJournaled = "Journaled"
	// ReasonDispatchUnanswered: the robot is connected and does not answer. It is also the reason
	// of ConditionResponsive.
	ReasonDispatchUnanswered = "DispatchUnanswered"
)

// The condition types of Robots.
const (
	// ConditionConnected reports whether the robot is connected. Written by the server.
	ConditionConnected = "Connected"
	// ConditionResponsive reports whether the robot answers dispatches. While it is False, no task
	// is placed on the robot. Written by the server.
	ConditionResponsive = "Responsive"
	// ConditionDiskPressure reports whether the disk of the agent's state directory is almost
	// full. While it is True, no task is placed on the robot. Written by the server.
	ConditionDiskPressure = "DiskPressure"
	// ConditionJournalReadOnly reports whether the agent cannot write its journal. While it is
	// True, no task is placed on the robot. Written by the server.
	ConditionJournalReadOnly = "JournalReadOnly"
	// ConditionMaintenance reports whether a person at the robot has begun a maintenance. While it is True,
	// no task is placed on the robot, and the robot starts nothing. It is set once there was one. Written
	// by the server.
	ConditionMaintenance = "Maintenance"
	// ConditionLabelsAccepted reports whether the labels that the robot reports follow the syntax
	// of Kubernetes labels. It is set once one does not. Written by the server.
	ConditionLabelsAccepted = "LabelsAccepted"
	// ConditionApproved reports whether the robot may be given tasks. Written by the manager.
	ConditionApproved = "Approved"
)

// The reasons of the events of Robots that have no condition.
const (
	// ReasonRateLimited: the robot, or the robots of its namespace, use more of the control plane
	// than a limit allows. The message names the limit and what follows.
	ReasonRateLimited = "RateLimited"
)

// The reasons of ConditionLabelsAccepted.
const (
	// ReasonLabelsValid: all labels that the robot reports are used.
	ReasonLabelsValid = "LabelsValid"
	// ReasonLabelInvalid: a label that the robot reports is ignored, because of its syntax.
	ReasonLabelInvalid = "LabelInvalid"
)

// The conditions of holds and maintenance windows, and their reasons.
const (
	// ConditionHeld of a Robot reports whether people at the robot hold it, or some of its tasks.
	ConditionHeld = "Held"
	// ReasonHeld: there is a hold.
	ReasonHeld = "Held"
	// ReasonReleased: the last hold was released.
	ReasonReleased = "Released"

	// ConditionOpen of a MaintenanceWindow reports whether it is open.
	ConditionOpen = "Open"
	// ReasonWindowOpen: the schedule has opened it.
	ReasonWindowOpen = "WindowOpen"
	// ReasonWindowClosed: by the schedule, or by an exception.
	ReasonWindowClosed = "WindowClosed"
	// ReasonInvalidSpec: the spec of the window cannot be used, so it stays closed.
	ReasonInvalidSpec = "InvalidSpec"
)

// The reasons of ConditionMaintenance.
const (
	// ReasonMaintenanceOn: a person at the robot has begun a maintenance.
	ReasonMaintenanceOn = "MaintenanceOn"
	// ReasonMaintenanceOff: the maintenance has ended, at the robot or by robot unlock.
	ReasonMaintenanceOff = "MaintenanceOff"
)

// The reasons of ConditionConnected.
const (
	// ReasonHeartbeatReceived: the server receives messages of the robot.
	ReasonHeartbeatReceived = "HeartbeatReceived"
	// ReasonLastWill: the broker published the last will of the agent, because its connection
	// broke at the time of the transition.
	ReasonLastWill = "LastWill"
	// ReasonDisconnected: the agent disconnected in order at the time of the transition.
	ReasonDisconnected = "Disconnected"
	// ReasonUnresponsive: the server has received no message for --offline-after. The last
	// contact was that much earlier than the transition; see the robot's HeartbeatSlice.
	ReasonUnresponsive = "Unresponsive"
)

// The values of a Job's spec.desiredState.
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

// The modes of a restartPolicy whose attempts are used up: continue with the reschedulePolicy, or
// wait for the next interval.
const (
	RestartFail  = "fail"
	RestartDelay = "delay"
)

// The values of restartPolicy.onReboot: start the task again after a restart of its robot, or end its
// attempt.
const (
	OnRebootRestart = "restart"
	OnRebootReport  = "report"
)

// OfflineSecretsSealed is the value of offlineSecrets with which a robot keeps the values of secretEnv
// encrypted.
const OfflineSecretsSealed = "sealed"

// The growth of a reschedulePolicy's delay. Exponential is the default.
const (
	DelayConstant    = "constant"
	DelayExponential = "exponential"
	DelayFibonacci   = "fibonacci"
)
