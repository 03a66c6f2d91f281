package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
)

// Input is what Plan decides by.
type Input struct {
	Rollout *v1alpha1.Rollout
	// Job is nil if it does not exist.
	Job *v1alpha1.Job
	// Newer is the name of the Rollout that supersedes this one. If empty, there is none.
	Newer string
	// Revisions are the numbers of the Job's revisions, ascending. They are read until the Rollout has started.
	Revisions []int64
	// Target and Current are the revisions of the Rollout and of the Job. Nil if they do not exist.
	Target, Current Hashes
	// TargetName is the name of the ControllerRevision of Target. Empty if it does not exist.
	TargetName string
	// Prefetched is how many robots have fetched in advance. If nil, they do not at the moment.
	Prefetched *int32
	// Units are sorted by name.
	Units []Unit
	// Calendar holds the maintenance windows of the robots. Nil: none has one.
	Calendar *window.Calendar
	// ObservedSince is since when this manager observes the Rollout.
	ObservedSince time.Time
	// ReturnedAt is when this manager has seen the last unit return, or the revert begin. Zero if not yet.
	ReturnedAt time.Time
	// LastStatus is when the status was last written.
	LastStatus time.Time
}

// Hashes are the values of the label v1alpha1.LabelRevision of a revision's Tasks, by group and by task.
type Hashes map[string]map[string]string

// Unit is a robot or a replica.
type Unit struct {
	rollout.Unit
	// Robot of the unit. Empty for a replica without one.
	Robot string
	// Groups are the groups of which the unit should have Tasks.
	Groups []string
	// Agent is what is changed of a robot by a Rollout of agents. Nil for a Job.
	Agent *Agent
	// InContact reports whether the unit can be changed now: its robot is online and, for robots as units,
	// takes new tasks. A replica without a robot can. For an agent, its robot is online.
	InContact bool
	// ContactSince is when contact was seen to begin. Zero if it has lasted since the first observation.
	ContactSince time.Time
	// Heartbeat is when the server last received a message of the unit's robot, by its clock. Zero if that was not
	// read, or if there is none.
	Heartbeat time.Time
	// LastContact is the last Heartbeat that is contactSettles old, but not later than when the manager first read
	// it: the clocks of both may differ. Zero if there is none.
	LastContact time.Time
	// QuickLosses is how often in a row contact was lost after less than steadyContact.
	QuickLosses int
	// ChangingSince is when the unit was seen to become StateUpdating. Zero if it was that from the start, or
	// is not.
	ChangingSince time.Time
	// BlockedAt is when the unit was last seen held or outside its windows. Zero if it never was.
	BlockedAt time.Time
	// Last is the state in the plan before, if HasLast.
	Last    State
	HasLast bool
	Tasks   []Task
}

// Agent is the agent of a robot. Its times are those that this manager has seen.
type Agent struct {
	Version string
	// Update is what the agent last reported about an order, of any Rollout. Nil if nothing.
	Update *v1alpha1.AgentUpdate
	// Robot has the windows and the holds that the update waits for.
	Robot window.Robot
	// Obstacle is why the agent cannot be updated.
	Obstacle rollout.Obstacle
	// HasSettled reports whether the agent has the version of the Rollout, and does not test it any more.
	HasSettled bool
	// HadVersion reports whether it has the version for another reason than this Rollout.
	HadVersion bool
	// HealthySince is since when the agent has settled and is in contact, and SeenHealthy when it was last seen
	// so. Zero if it has not settled.
	HealthySince, SeenHealthy time.Time

	needsRevert bool
}

// Task is a Task of a unit.
type Task struct {
	Name, Group, Task string
	UID               types.UID
	// Robot is the one that it is bound to. Nil if there is none, or if it is not known.
	Robot           *window.Robot
	Revision        string
	State           lifecycle.TaskState
	Reason, Message string
	// IsEvicting reports whether its eviction is requested, which no window or hold has withdrawn.
	IsEvicting bool
	// IsStopping reports whether it is being evicted: that is requested, or was ordered and is not withdrawn.
	IsStopping bool
	// WithdrawnAt is when an order to stop the present attempt was withdrawn. Zero without one.
	WithdrawnAt time.Time
	// HasStarted reports whether it was seen on a robot with the new revision.
	HasStarted bool
	// EndsItself reports whether it runs to its end. Others are kept running.
	EndsItself bool
	// RevisedAt is when the Task got its revision.
	RevisedAt time.Time
	// RunsSince is when the current run was first seen. Zero without one.
	RunsSince time.Time
	// SeenRunning is when it was last seen to run.
	SeenRunning time.Time
}

// State is the progress of a unit.
type State int

// The states of units.
const (
	StateWaiting State = iota
	StateOutOfContact
	StateOutsideWindow
	StateHeld
	StateUpdating
	StateUpdated
	StateFailed
)
