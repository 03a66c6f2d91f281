package task

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// Input is all that a decision about one Task depends on. Fields that say so are read only
// where they can change the decision.
type Input struct {
	Task *v1alpha1.Task
	// Robot is the one that the Task is on, was given or names. Nil if it has no object.
	Robot    *v1alpha1.Robot
	robotKey key
	// Job that the Task belongs to. Nil if it has none, or it is gone.
	Job *v1alpha1.Job
	// Group that the Task belongs to. Nil if it has none, or it is gone.
	Group *v1alpha1.TaskGroup
	// HasCapableRobot is set if a robot exists that could take the Task, now or later, beside
	// those that have failed it or are blocked. Read for exited and failed tasks only.
	HasCapableRobot bool
	// OtherAttempts are the attempts that are not known to have ended, with their robots. Read
	// before an attempt starts, if robots are to stop tasks by themselves.
	OtherAttempts []OtherAttempt
	// LostAttemptRobot is the robot of the lost attempt. Nil if there is none, or no object.
	LostAttemptRobot *v1alpha1.Robot
	// BetterRobot is the one that placement prefers of two on which the Task runs. Read for
	// reconcile mode best_score only.
	BetterRobot string
	// OnlineSince is since when some robot of the namespace has been online. Zero if none is.
	OnlineSince time.Time
	// RecoveryTime is how long robots need to come back after an outage of all.
	RecoveryTime time.Duration
	// Siblings are the other Tasks of the replica. Read only if some of them wait for others.
	Siblings []v1alpha1.Task
	// PendingReplicaRobot is the robot on which others of the replica are about to start. Read
	// for ended init tasks only.
	PendingReplicaRobot string
	// EvictionReason says why the Task must leave its robot. If empty, it may stay.
	EvictionReason string
	// ReservedRobot is the robot that the scheduler reserved for it. Empty if none.
	ReservedRobot string
	// Rejected says why no robot is reserved. Nil if the scheduler has not looked yet.
	Rejected *placement.Diagnosis
	// MayExplain allows a write that only explains why the Task waits.
	MayExplain bool
}

// OtherAttempt is an attempt that may still run.
type OtherAttempt struct {
	Attempt int32
	// Name of its robot.
	Name string
	// Robot is nil if there is no such object.
	Robot *v1alpha1.Robot
	key   key
}
