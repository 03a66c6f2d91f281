package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Job runs groups of tasks on the robots that it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=jobs,singular=job,shortName=rjob,categories=k8s4r
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.totalTasks`
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=`.status.succeededTasks`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failedTasks`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningTasks`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.statusDescription`,priority=1
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	Spec JobSpec `json:"spec"`
	// Status is what has come of it.
	// +optional
	Status JobStatus `json:"status,omitempty"`
}

// JobList is a list of Jobs.
//
// +kubebuilder:object:root=true
type JobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Job `json:"items"`
}

// The types of a Job.
const (
	JobTypeBatch   = "batch"
	JobTypeService = "service"
	JobTypeSystem  = "system"
)

// TaskTypeSysbatch is the type of an init task of a system job: it runs to the end,
// and belongs to its robot like the others of its replica.
const TaskTypeSysbatch = "sysbatch"

// JobSpec is what a Job runs, where, and what happens when it fails.
type JobSpec struct {
	// Name for people. Empty: the object's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// RobotSelector picks the robots that carry all of these labels, in
	// spec.labels or metadata.labels. Empty: all robots.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	RobotSelector map[string]string `json:"robotSelector,omitempty"`

	// Type of the job: batch runs to the end, service is kept running, system
	// runs one replica on every robot that matches.
	// +optional
	// +kubebuilder:validation:Enum=batch;service;system
	// +kubebuilder:default=batch
	Type string `json:"type,omitempty"`

	// Datacenters that robots may be in, by their label datacenter. Empty:
	// any.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Datacenters []string `json:"datacenters,omitempty"`

	// Priority of the job's tasks when robots are scarce, 0 to 100; the
	// higher goes first.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=50
	Priority *int32 `json:"priority,omitempty"`

	// Preemption lets the job's tasks push away tasks of lower priority, of the same
	// namespace.
	// +optional
	Preemption bool `json:"preemption,omitempty"`

	// Meta is the user's own data about the job.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Meta map[string]string `json:"meta,omitempty"`

	// TaskGroups of the job. They run side by side.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	TaskGroups []TaskGroupDefinition `json:"taskGroups" patchStrategy:"merge" patchMergeKey:"name"`

	// DesiredState is the operator's wish. Empty reads as running.
	// +optional
	// +kubebuilder:validation:Enum=running;paused;canceled
	DesiredState string `json:"desiredState,omitempty"`

	// Requeue puts tasks of the job back, each time that its generation grows
	// beyond the one in status.requeue. An older one, or none, is no wish.
	// +optional
	Requeue *Requeue `json:"requeue,omitempty"`

	// FailurePolicy bounds what may fail.
	// +optional
	FailurePolicy *FailurePolicy `json:"failurePolicy,omitempty"`

	// Disconnect says what happens to tasks on a robot that is out of
	// contact.
	// +optional
	Disconnect *Disconnect `json:"disconnect,omitempty"`

	// ActiveDeadline bounds the life of the job from its first start.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more, because the job fails when it is over; leave it out for a job that may take any time"
	ActiveDeadline *Duration `json:"activeDeadline,omitempty"`

	// TTLSecondsAfterFinished is how long the job is kept after it has ended, and
	// where the manager keeps an archive until it is in there. Not set: for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// TaskGroupDefinition is a set of tasks that run together on one robot, and
// how many such sets there are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initTasks) || self.initTasks.all(i, !self.tasks.exists(t, t.name == i.name))",message="a name must not stand in both initTasks and tasks"
// +kubebuilder:validation:XValidation:rule="!has(self.gang) || !self.gang || !has(self.count) || (self.count <= 128 && self.count * (size(self.tasks) + (has(self.initTasks) ? size(self.initTasks) : 0)) <= 500)",message="gang: a gang is placed in one go and has at most 128 replicas and 500 tasks; lower count, or leave gang out"
type TaskGroupDefinition struct {
	// Name of the group, unique within its job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	TaskGroupTemplate `json:",inline"`
}

// TaskGroupTemplate is what a group of a Job and a TaskGroup have in common.
type TaskGroupTemplate struct {
	// Count is the number of replicas. Each runs every task of the group; the
	// tasks of one replica share a robot, and replicas spread over distinct
	// robots while there are enough.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=1
	Count *int32 `json:"count,omitempty"`

	// InitTasks run one after another before the tasks, on the same robot. One that
	// is a daemon is only started in its turn.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	InitTasks []TaskDefinition `json:"initTasks,omitempty" patchStrategy:"merge" patchMergeKey:"name"`

	// Tasks of each replica. They run side by side.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Tasks []TaskDefinition `json:"tasks" patchStrategy:"merge" patchMergeKey:"name"`

	// Constraints that a robot must meet.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Constraints []Constraint `json:"constraints,omitempty"`

	// RestartPolicy of the tasks on the same robot.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`

	// ReschedulePolicy of the tasks to other robots.
	// +optional
	ReschedulePolicy *ReschedulePolicy `json:"reschedulePolicy,omitempty"`

	// EphemeralDisk is a directory that the tasks of each replica share on their
	// robot, by the name K8S4R_ALLOC_DIR. Not set: they share none.
	// +optional
	EphemeralDisk *EphemeralDisk `json:"ephemeralDisk,omitempty"`

	// Meta is the user's own data about the group.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Meta map[string]string `json:"meta,omitempty"`

	// Gang starts all replicas or none. A gang has at most 128 replicas and
	// 500 tasks, because it is placed in one go.
	// +optional
	Gang bool `json:"gang,omitempty"`

	// Placement says how replicas are laid over the robots.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// Update says how a changed group rolls over.
	// +optional
	Update *Update `json:"update,omitempty"`
}

// Definitions of all tasks of a replica, the init tasks first.
func (g *TaskGroupTemplate) Definitions() []*TaskDefinition {
	out := make([]*TaskDefinition, 0, g.Size())
	for i := range g.InitTasks {
		out = append(out, &g.InitTasks[i])
	}
	for i := range g.Tasks {
		out = append(out, &g.Tasks[i])
	}
	return out
}

// Size is the number of tasks of a replica.
func (g *TaskGroupTemplate) Size() int { return len(g.InitTasks) + len(g.Tasks) }

// Staged tells whether some tasks of a replica begin or end by what has become of
// others.
func (g *TaskGroupTemplate) Staged() bool {
	return len(g.InitTasks) > 0 || slices.ContainsFunc(g.Tasks, func(t TaskDefinition) bool { return t.Daemon })
}

// EphemeralDisk is the replica's directory on its robot.
//
// +kubebuilder:validation:XValidation:rule="!has(self.migrate) || !self.migrate",message="migrate is not supported: a robot's disk cannot be reached from another robot; write what must survive to an output or an artifact store, and leave migrate out"
type EphemeralDisk struct {
	// Migrate must be false: data does not move between robots.
	// +optional
	Migrate bool `json:"migrate,omitempty"`
	// SizeMB is how much the replica may have on its robot's disk, in megabytes of a
	// million bytes: it is set aside when a robot is chosen, and a replica that is
	// found to have more fails. Zero: any amount, and none is set aside.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	SizeMB int64 `json:"sizeMB,omitempty"`
	// Sticky prefers the robot that the replica was on last, and keeps the directory
	// there for a week.
	// +optional
	Sticky bool `json:"sticky,omitempty"`
}

// Bytes that are set aside for the replica. Zero: none.
func (d *EphemeralDisk) Bytes() int64 {
	if d == nil {
		return 0
	}
	return d.SizeMB * 1_000_000
}

// The strategies of a Placement.
const (
	StrategySpread = "spread"
	StrategyPack   = "pack"
)

// Placement says how the replicas of a group are laid over the robots.
type Placement struct {
	// Strategy: spread takes as many robots as there are, pack as few as
	// possible.
	// +optional
	// +kubebuilder:validation:Enum=spread;pack
	// +kubebuilder:default=spread
	Strategy string `json:"strategy,omitempty"`
	// Affinity draws replicas to robots.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Affinity []AffinityTerm `json:"affinity,omitempty"`
	// AntiAffinity keeps replicas away from robots.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	AntiAffinity []AffinityTerm `json:"antiAffinity,omitempty"`
}

// AffinityTerm is a set of robots with a weight.
//
// +kubebuilder:validation:XValidation:rule="has(self.robotLabels) != has(self.taskGroup)",message="set exactly one of robotLabels and taskGroup"
type AffinityTerm struct {
	// RobotLabels that the robots carry.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	RobotLabels map[string]string `json:"robotLabels,omitempty"`
	// TaskGroup of the same job that runs on the robots.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TaskGroup *string `json:"taskGroup,omitempty"`
	// Weight of the term beside the others, 1 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=50
	Weight int32 `json:"weight,omitempty"`
}

// Update says how a changed group rolls over.
type Update struct {
	// MaxParallel replicas change at a time. 0 means 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	MaxParallel int32 `json:"maxParallel,omitempty"`
	// MinHealthyTime that a changed replica must run before the next one. Not
	// set: 10s.
	// +optional
	MinHealthyTime *Duration `json:"minHealthyTime,omitempty"`
}

// Requeue puts tasks of a job back.
type Requeue struct {
	// Generation of the wish: each growth beyond the one that was taken up last
	// puts tasks back once.
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation"`
	// Scope of the wish: all tasks, or the failed ones, which goes without tasks.
	// +optional
	// +kubebuilder:validation:Enum=all;failed
	// +kubebuilder:default=all
	Scope string `json:"scope,omitempty"`
	// Tasks by the names of their objects.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Tasks []string `json:"tasks,omitempty"`
}

// FailurePolicy bounds what may fail.
type FailurePolicy struct {
	// MaxFailedPercent is the share of failed tasks at which the job fails.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	MaxFailedPercent *int32 `json:"maxFailedPercent,omitempty"`
	// SoftFailLimit is the number of distinct robots that must fail a task
	// before it has failed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=3
	SoftFailLimit *int32 `json:"softFailLimit,omitempty"`
	// BlocklistAfter is the number of tasks of a group that a robot must fail
	// before the job leaves it alone.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=3
	BlocklistAfter *int32 `json:"blocklistAfter,omitempty"`
}

// The ways to settle between an original whose robot has come back and what took
// its place.
const (
	BestScore       = "best_score"
	KeepOriginal    = "keep_original"
	KeepReplacement = "keep_replacement"
	LongestRunning  = "longest_running"
)

// Disconnect says what happens to tasks on a robot that is out of contact.
type Disconnect struct {
	// LostAfter is how long a task waits for its robot, from when that was last
	// heard. Less than the time after which a silent robot is offline counts only
	// when the broker has seen the connection break.
	// +optional
	// +kubebuilder:default="5m"
	LostAfter *Duration `json:"lostAfter,omitempty"`
	// StopOnRobotAfter makes the robot stop the task that long after it lost
	// contact, and no replacement starts before it has. Without it a replacement
	// may run beside the original.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more; leave it out for a task that its robot need not stop by itself"
	StopOnRobotAfter *Duration `json:"stopOnRobotAfter,omitempty"`
	// Replace the task on another robot when it has waited for lostAfter. False:
	// it waits until its own is back, or it is evicted or canceled.
	// +optional
	// +kubebuilder:default=true
	Replace *bool `json:"replace,omitempty"`
	// Reconcile says which run survives when both are there: the original, its
	// replacement, the one that has run for longer, or the one on the robot that
	// placement would choose.
	// +optional
	// +kubebuilder:validation:Enum=best_score;keep_original;keep_replacement;longest_running
	// +kubebuilder:default=keep_original
	Reconcile string `json:"reconcile,omitempty"`
}

// TaskCounts says how many tasks are in which state. Every task is in exactly
// one of them; tasks that are not created yet count as pending.
type TaskCounts struct {
	// TotalTasks is the number of all tasks.
	TotalTasks int32 `json:"totalTasks"`
	// PendingTasks wait for a robot.
	PendingTasks int32 `json:"pendingTasks"`
	// DispatchingTasks are bound and not confirmed yet.
	// +optional
	DispatchingTasks int32 `json:"dispatchingTasks,omitempty"`
	// RunningTasks run.
	RunningTasks int32 `json:"runningTasks"`
	// UnknownTasks are on robots that are out of contact.
	// +optional
	UnknownTasks int32 `json:"unknownTasks,omitempty"`
	// ExitedTasks failed and wait for the decision what follows.
	// +optional
	ExitedTasks int32 `json:"exitedTasks,omitempty"`
	// SoftFailedTasks failed on a robot and wait for another.
	// +optional
	SoftFailedTasks int32 `json:"softFailedTasks,omitempty"`
	// PausedTasks are held back.
	// +optional
	PausedTasks int32 `json:"pausedTasks,omitempty"`
	// SucceededTasks completed.
	SucceededTasks int32 `json:"succeededTasks"`
	// FailedTasks failed for good.
	FailedTasks int32 `json:"failedTasks"`
	// CanceledTasks were called off.
	// +optional
	CanceledTasks int32 `json:"canceledTasks,omitempty"`
}

// JobStatus is written only by the manager's job controller, but for the condition
// Archived, which is its archive controller's.
type JobStatus struct {
	// State of the job.
	// +optional
	// +kubebuilder:validation:Enum=under-construction;pending;running;pause-requested;paused;cancel-requested;canceled;requeueing;completed;failed
	State string `json:"state,omitempty"`
	// Status is the older name of state, with the same value.
	// +optional
	Status string `json:"status,omitempty"`
	// StatusDescription keeps the last change and why it happened.
	// +optional
	StatusDescription string `json:"statusDescription,omitempty"`

	TaskCounts `json:",inline"`

	// StartedAt is when the first task started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// CompletedAt is when the job ended, well or badly.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Requeue is the last wish of spec.requeue that was taken up.
	// +optional
	Requeue *RequeueStatus `json:"requeue,omitempty"`
	// Blocklist names the robots that a group leaves alone, because too many of
	// its tasks failed there.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Blocklist []BlockedRobot `json:"blocklist,omitempty"`
	// Conditions Complete, Failed and Suspended, and Archived where the manager keeps
	// an archive.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RequeueStatus is a wish that was taken up.
type RequeueStatus struct {
	Requeue `json:",inline"`
	// From is the state that the job was in.
	// +optional
	From string `json:"from,omitempty"`
	// Failed is how many tasks it left failed. They alone do not fail the job
	// again before the tasks that were put back have ended.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// BlockedRobot is a robot that a group leaves alone.
type BlockedRobot struct {
	// TaskGroup by its name in the job.
	TaskGroup string `json:"taskGroup"`
	// Robot by its id.
	Robot string `json:"robot"`
}
