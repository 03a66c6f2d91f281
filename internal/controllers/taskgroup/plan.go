package taskgroup

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/window"
)

// Config holds the limits of the controller.
type Config struct {
	// Window is how many unfinished Tasks of a group exist at a time. 0 means 500.
	Window int
	// LookAhead is how many replicas are created without a robot, so that users see
	// pending Tasks and why they wait. 0 means 8.
	LookAhead int
	// Tick is the least time between two status writes that only show progress, and before
	// the first one. 0 means 250ms.
	Tick time.Duration
}

// WithDefaults returns c with the defaults for all unset fields.
func (c Config) WithDefaults() Config {
	if c.Window == 0 {
		c.Window = 500
	}
	if c.LookAhead == 0 {
		c.LookAhead = 8
	}
	if c.Tick == 0 {
		c.Tick = 250 * time.Millisecond
	}
	return c
}

// boundGracePeriod is how long a group whose replicas find robots waits before it
// creates replicas without one. A Task that is created bound saves a write.
const boundGracePeriod = time.Second

// Input holds everything that a decision about one group depends on.
type Input struct {
	Group *v1alpha1.TaskGroup
	// Job owns the group. Nil if it was deleted.
	Job *v1alpha1.Job
	// Tasks counts the existing Tasks by state.
	Tasks lifecycle.Counts
	// CreatingTasks counts created Tasks that the cache does not show yet.
	CreatingTasks int
	// UnboundTasks counts the Tasks, including those, that wait without a robot.
	UnboundTasks int
	// IncompleteReplicas are replicas of which some Tasks are missing.
	IncompleteReplicas []Replica
	// NextIndex is the first replica index that was never created.
	NextIndex int
	// FailingRobots are the robots on which blocklistAfter Tasks of the group failed,
	// sorted.
	FailingRobots []string
	// FailedOnBlocked counts the Tasks that failed on blocked robots. They will be
	// retried on other robots.
	FailedOnBlocked int
	// RangesOnBlocked are the ranges of an array that run on blocked robots.
	RangesOnBlocked []Member
	// UnstoppedTasks counts the Tasks that have not followed the pause or the cancel of the job yet.
	UnstoppedTasks int
	// RequeuesLeft counts the Tasks that have not followed the job's requeue yet.
	RequeuesLeft int
	// ReservationPending is true if robots were requested and no more have been
	// reserved since.
	ReservationPending bool
	// DenialMessage is the API server's message if it rejects the group's Tasks.
	DenialMessage string
	// RetryAt is when to try again to create the rejected Tasks.
	RetryAt time.Time
	// LastBound is when a replica was last created with a robot.
	LastBound time.Time
	// LastStatus is when the status was last written, or the group was first seen.
	LastStatus time.Time
	// DefinitionBytes is the memory that the tasks of one replica take.
	DefinitionBytes int
	// Defect is why Tasks of the group's definition cannot exist.
	Defect Defect
	// Revisions are the wanted revisions of the group's Tasks, by task name.
	Revisions map[string]string
	// Members are the Tasks that need individual decisions, ordered by replica: all
	// Tasks of a system or sysbatch job, otherwise the outdated, evicted and surplus ones.
	Members []Member
	// Fleet are the robots that match a system or sysbatch job, by name. Nil for other jobs.
	Fleet map[string]RobotMatch
	// Array is what is known of the indexes of the group's array. Nil for other groups.
	Array *ArrayInput
	// Interruptions decides which running Tasks may be interrupted for another definition. Nil: all.
	Interruptions *Interruptions
	// Waves decides the definition of each Task if the Job has the strategy Rollout. Nil for other jobs.
	Waves *Waves
}

// Member is one Task of the group.
type Member struct {
	Name string
	UID  types.UID
	// Task is its name in the group.
	Task string
	// Index is the index of its replica.
	Index int
	// IsIndex is true if it runs a single index of an array, and is in no replica.
	IsIndex bool
	State   lifecycle.TaskState
	// Robot is the robot that the Task is bound to, or "".
	Robot string
	// Attempt is the current attempt.
	Attempt int32
	// Evict is the last attempt that was evicted from its robot, or 0.
	Evict int32
	// EvictWaits is true if that eviction waits for holds and maintenance windows. In Actions.Evict, it is
	// whether the eviction is to do so.
	EvictWaits bool
	// NextEvictAt is the earliest time of an eviction that waits, after one was withdrawn. If zero, there is
	// none.
	NextEvictAt time.Time
	// LostAttempt is an attempt on a lost robot that may be restored, or 0.
	LostAttempt int32
	// Outdated is true if the Task has an older definition, or another one than a Rollout wants it to have.
	Outdated bool
	// Since is when its current run was first seen. Zero if none runs, also if the robot is about to start
	// the next one.
	Since time.Time
	// ChangedAt is when the Task got its revision: its creation, unless IsRevised is true.
	ChangedAt time.Time
	// IsRevised is true if a Rollout has changed the revision of the Task since its creation.
	IsRevised bool

	side                          side
	undefined, isReplaced, isHeld bool // see definitionCheck
}

// Replica holds the missing Tasks of one replica.
type Replica struct {
	Index int
	Tasks []*v1alpha1.TaskDefinition
	// Robot is the robot for the Tasks of a system or sysbatch job. Empty for other jobs.
	Robot string
	// Target is true if the Tasks have the definition of a Rollout.
	Target bool
}

// Revision updates a Task to the current definition.
type Revision struct {
	Name string
	// Forget resets spec.evictAttempt, which belongs to an earlier rollout.
	Forget bool
	// Target selects the definition of the Rollout.
	Target bool
	// Keep leaves the Task its definition.
	Keep bool
}

// Actions is what the controller does after one Plan.
type Actions struct {
	// Reserve robots for these replicas, and create those that get one.
	Reserve []Replica
	// Complete are replicas with missing Tasks. These Tasks are created without a robot,
	// because only the scheduler knows where the others run. Those of a system job are
	// created on their robot.
	Complete []Replica
	// CreateIndexes are the indexes of an array that get a Task of their own.
	CreateIndexes []IndexTask
	// CreateUnbound is how many replicas of Reserve are created without a robot.
	CreateUnbound int
	// ReleaseReservations cancels the group's requests for robots.
	ReleaseReservations bool
	// Revise are the Tasks to update to the current definition.
	Revise []Revision
	// Evict are the Tasks to evict from their robots.
	Evict []Member
	// Delete are the names of surplus Tasks.
	Delete []string
	// ChangeRanges are changes of the ends of indexes that ranges show.
	ChangeRanges []RangeChange
	// Rollout is the reason of an event if the rollout starts or ends, or empty.
	Rollout string
	// Status is the status to write, or nil if it is unchanged.
	Status *v1alpha1.TaskGroupStatus
	// RequeueAt is when to reconcile again. Zero waits for the next watch event.
	RequeueAt time.Time
	// Changes are the changes of the state in order. Each becomes an event.
	Changes []taskcounts.Change
	// BlockedRobots are the robots that get no more Tasks of the group.
	BlockedRobots []string
	// Reasons has one line for each decision, for the log.
	Reasons []string
}

// Plan returns the actions for one group.
func Plan(now time.Time, c Config, w Input) Actions {
	p := &plan{now: now, Config: c, Input: w}
	if w.Job == nil || w.Job.DeletionTimestamp != nil || w.Group.DeletionTimestamp != nil {
		p.out.ReleaseReservations = true
		return p.out
	}
	if p.hasEnded() {
		p.out.ReleaseReservations = true
		p.countUnconfirmedStops()
		return p.out
	}
	if w.CreatingTasks > 0 {
		// There is no event if a Task was deleted while the watch was down.
		p.requeueAt(now.Add(kit.ExpectationLifetime))
	}
	p.divideMembers()
	p.planArray()
	p.planCreates()
	p.planRemovals()
	p.planRollout()
	p.requeueAtWindowChange()
	p.planStatus()
	return p.out
}

// plan is the state of one call of Plan.
type plan struct {
	Input
	Config
	now time.Time
	out Actions
	// staying and leaving partition Members into wanted and surplus Tasks, besides departed.
	staying, leaving []Member
	// departed are the ended Tasks of a sysbatch job whose robots no longer match. They stay, so
	// that a robot that matches again does not run them again.
	departed []Member
	// replicaByRobot holds the replica index of each robot of a system or sysbatch job.
	replicaByRobot map[string]int
	rollout        rolloutProgress
	view           *window.View // of Interruptions; nil: not needed yet
}

// hasEnded reports whether the group and its Tasks have ended and nothing is left to
// do. Tasks that are requeued later open the group again, so that the job waits for
// them. A system job ignores robots that join or leave after its end.
func (p *plan) hasEnded() bool {
	s := p.Group.Status
	left := !p.isSystem() && slices.ContainsFunc(p.Members, func(m Member) bool { return !m.IsIndex && m.Index >= p.replicaCount() })
	return s.CompletedAt != nil && !p.awaitsRobots() && p.pendingRequeue() == nil && !p.isNewGeneration() && !left && !p.owesAnswer() &&
		p.Tasks.TerminalCount() == p.Tasks.Total && p.FailedOnBlocked == 0
}

// isNewGeneration reports whether the spec changed since the last status write.
func (p *plan) isNewGeneration() bool { return p.Group.Status.ObservedGeneration != p.Group.Generation }

// owesAnswer reports whether the job waits until the group's tasks have followed its state.
func (w *Input) owesAnswer() bool {
	return w.Job != nil && taskcounts.AwaitsTasks(w.Job) && w.Group.Status.ObservedStateChanges < w.Job.Status.StateChanges
}

// canAnswerJob reports whether the tasks have followed a pause, a cancel or a requeue for which the
// job waits.
func (w *Input) canAnswerJob() bool {
	isRequeued := w.Job != nil && taskcounts.PendingRequeue(w.Job, w.Group) != nil && w.RequeuesLeft == 0
	return isRequeued || w.owesAnswer() && w.CreatingTasks+w.UnstoppedTasks == 0
}

// isSystem reports whether the group has one replica on each matching robot.
func (w *Input) isSystem() bool { return w.Job != nil && v1alpha1.RunsOnEveryRobot(w.Job.Spec.Type) }

// isKeptRunning reports whether ended Tasks are restarted.
func (w *Input) isKeptRunning() bool { return w.Job != nil && v1alpha1.IsKeptRunning(w.Job.Spec.Type) }

func (p *plan) requeueAt(at time.Time) {
	kit.SetEarliest(&p.out.RequeueAt, at)
}

func (p *plan) jobState() lifecycle.JobState { return lifecycle.JobState(p.Job.Status.State) }

func (w *Input) jobStartsTasks() bool { return lifecycle.JobState(w.Job.Status.State).StartsTasks() }

// replicaCount returns the wanted number of replicas.
func (p *plan) replicaCount() int {
	if p.isSystem() {
		return p.coveredRobots()
	}
	return apiconv.ReplicaCount(p.Group)
}

// endIndex returns the index after the last replica that may be created.
func (p *plan) endIndex() int {
	if from := p.Group.Status.CanceledFromReplica; from != nil {
		return min(int(*from), p.replicaCount())
	}
	return p.replicaCount()
}

// totalTasks returns the wanted number of tasks. Each index of an array counts as one.
func (p *plan) totalTasks() int {
	switch {
	case p.Array != nil:
		return p.Array.Total
	case p.isClosed():
		return len(p.staying) + len(p.departed)
	}
	n := p.replicaCount()*p.Group.Spec.TasksPerReplica() + len(p.departed)
	if p.Waves != nil {
		n = max(n, p.begunTasks()) // the target may have more tasks per replica
	}
	return n
}
