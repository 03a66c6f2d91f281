package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// Input holds everything that a decision about one Task depends on. Fields documented as
// "read for" some tasks are zero for all others, which they do not concern.
type Input struct {
	Task *v1alpha1.Task
	// Robot is the robot that holds the Task, is reserved for it, or is named by its spec. Nil
	// if there is no such object.
	Robot    *v1alpha1.Robot
	robotKey key
	// Contact is that of Robot, or since when it has no object.
	Contact Contact
	// Ages are those of the Task on Robot.
	Ages
	// Job is the Job of the Task. Nil if the Task has none, or it was deleted.
	Job *v1alpha1.Job
	// Group is the TaskGroup of the Task. Nil if the Task has none, or it was deleted.
	Group *v1alpha1.TaskGroup
	// HasCapableRobot is true if a robot could run the Task, now or later, other than those on
	// which it failed and those that its group has blocked. Read for exited and failed tasks.
	HasCapableRobot bool
	// OtherAttempts are the attempts that are not known to have ended, with their robots. Read
	// for tasks that wait or have exited, if their job sets disconnect.stopOnRobotAfter.
	OtherAttempts []OtherAttempt
	// OpenAttempts are the attempts that are not known to have ended, with their robots. Read for tasks
	// that have ended or whose job cancels them, and for those with a stop that is not confirmed.
	OpenAttempts []OtherAttempt
	// LostAttemptRobot is the robot of the lost attempt. Nil if there is no such attempt, or
	// its robot has no object.
	LostAttemptRobot *v1alpha1.Robot
	// BetterRobot is the robot that placement prefers of two on which the Task runs. Read for
	// reconcile mode best_score.
	BetterRobot string
	// OnlineSince is the time since when the namespace has had a robot online. Zero if all
	// robots are offline. Read for tasks on lost robots.
	OnlineSince time.Time
	// RecoveryTime is how long robots may take to reconnect after an outage of all of them.
	RecoveryTime time.Duration
	// Siblings are the other Tasks of the replica. Read for replicas with init tasks or daemons.
	Siblings []v1alpha1.Task
	// PendingReplicaRobot is the robot on which other tasks of the replica are about to start.
	// Read for ended init tasks.
	PendingReplicaRobot string
	// EvictionReason explains why the Task must leave its robot. If empty, it may stay.
	EvictionReason string
	// EvictionWaitsFor is what the eviction waits for, as in the spec of the Task. If empty, it waits for
	// nothing.
	EvictionWaitsFor string
	// WindowClosesAt is when the maintenance window in which the task may be interrupted closes. If zero,
	// no window limits that. A time that is not in the future: the windows of the robot are closed. Read
	// for evictions that wait for windows.
	WindowClosesAt time.Time
	// ReservedRobot is the robot that the scheduler reserved for the Task. Empty if there is none.
	ReservedRobot string
	// Rejected explains why no robot is reserved. Nil if no scheduler cycle has tried yet.
	Rejected *placement.Diagnosis
	// FirstAttempt is the lowest number of a new attempt. It is above 1 after a restore from a backup:
	// lower numbers may have been used since that backup.
	FirstAttempt int32
	// MayExplain allows a write that only explains why the Task waits.
	MayExplain bool
}

// OtherAttempt is an attempt that may still be running.
type OtherAttempt struct {
	Attempt int32
	// Name is the name of its robot.
	Name string
	// Robot is the robot of that name. Nil if there is no such object.
	Robot   *v1alpha1.Robot
	key     key
	Contact Contact // of Robot, or since when it has no object
}
