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
// +kubebuilder:printcolumn:name="Unconfirmed",type=integer,JSONPath=`.status.unconfirmedStops`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.statusDescription`,priority=1
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines what the job runs.
	Spec JobSpec `json:"spec"`
	// Status is the observed state of the job.
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
	// JobTypeSysbatch runs to its end once on every matching robot.
	JobTypeSysbatch = "sysbatch"
)

// TaskTypeSysbatch is the type of a task that runs to its end, and only on the robot of its replica:
// a task of a sysbatch job, or an init task of a system job.
const TaskTypeSysbatch = JobTypeSysbatch

// JobSpec defines what a job runs, where, and what happens when it fails.
type JobSpec struct {
	// Name for display. If empty, metadata.name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// RobotSelector selects the robots that have all of these labels, in spec.labels or
	// metadata.labels of the Robot. If empty, all robots.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	RobotSelector map[string]string `json:"robotSelector,omitempty"`

	// Type of the job. A batch job runs to its end. A service job is kept running. A system job
	// runs one replica on every matching robot, including robots that register later. A sysbatch
	// job runs to its end once on every matching robot; with activeDeadline also on robots that
	// register before it has passed.
	// +optional
	// +kubebuilder:validation:Enum=batch;service;system;sysbatch
	// +kubebuilder:default=batch
	Type string `json:"type,omitempty"`

	// Datacenters are the allowed values of the robots' label datacenter. If empty, any.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Datacenters []string `json:"datacenters,omitempty"`

	// Priority of the job's tasks when robots are scarce, from 0 to 100. Higher values are placed
	// first.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=50
	Priority *int32 `json:"priority,omitempty"`

	// Preemption allows the job's tasks to evict running tasks of lower priority in the same
	// namespace.
	// +optional
	Preemption bool `json:"preemption,omitempty"`

	// Meta holds values of the user, for templates and for references such as ${meta.team}.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Meta map[string]string `json:"meta,omitempty"`

	// TaskGroups of the job. They run in parallel.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	TaskGroups []TaskGroupDefinition `json:"taskGroups" patchStrategy:"merge" patchMergeKey:"name"`

	// DesiredState is the state that the user requests. If empty, running. A change that the
	// current state does not allow is rejected.
	// +optional
	// +kubebuilder:validation:Enum=running;paused;canceled
	DesiredState string `json:"desiredState,omitempty"`

	// Requeue returns ended tasks to pending each time its generation exceeds that of
	// status.requeue. A generation that is not greater has no effect.
	// +optional
	Requeue *Requeue `json:"requeue,omitempty"`

	// Update defines what a change of the definition does. If empty, the groups follow it at once, each by
	// its own update.
	// +optional
	Update *JobUpdate `json:"update,omitempty"`

	// RevisionHistoryLimit is the number of earlier definitions of a job of type service, system or
	// sysbatch that are kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// FailurePolicy bounds how many tasks may fail.
	// +optional
	FailurePolicy *FailurePolicy `json:"failurePolicy,omitempty"`

	// Disconnect defines what happens to tasks whose robot is disconnected, or does not answer.
	// +optional
	Disconnect *Disconnect `json:"disconnect,omitempty"`

	// ActiveDeadline bounds the time from the first start of a task until the job ends. When it
	// is exceeded the job fails with the reason DeadlineExceeded. If empty, there is no bound. A
	// job of type sysbatch stays open until then for robots that join, and has completed if all of
	// its tasks have ended. If empty, it ends as soon as they have.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?$') || size(self) == 0 || duration(self) >= duration('1s')",message="must be at least 1s; omit it for a job without a time limit"
	ActiveDeadline *Duration `json:"activeDeadline,omitempty"`

	// TTLSecondsAfterFinished is the number of seconds after which an ended job is deleted. If
	// the manager has an archive, the job is kept until it is recorded there. If not set, the job
	// is kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// TaskGroupDefinition is a set of tasks that run together on one robot, and the number of such
// sets.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initTasks) || self.initTasks.all(i, !self.tasks.exists(t, t.name == i.name))",message="a name must not occur in both initTasks and tasks"
// +kubebuilder:validation:XValidation:rule="!has(self.gang) || !self.gang || !has(self.count) || (self.count <= 128 && self.count * (size(self.tasks) + (has(self.initTasks) ? size(self.initTasks) : 0)) <= 500)",message="gang: a gang has at most 128 replicas and 500 tasks; lower count, or omit gang"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || !has(self.count) || self.count == 1",message="count: the array defines the number of tasks; omit count"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || size(self.tasks) == 1 && (!has(self.initTasks) || size(self.initTasks) == 0)",message="array: an array runs one task, without init tasks; move other tasks to groups of their own, or use count instead of array"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || (!has(self.gang) || !self.gang) && !has(self.ephemeralDisk)",message="array: indexes neither start together nor share a directory; omit gang and ephemeralDisk, or use count instead of array"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || !has(self.restartPolicy) || !has(self.restartPolicy.onReboot) || self.restartPolicy.onReboot == 'report'",message="array: the robot starts no index again after its restart, the manager does; omit restartPolicy.onReboot, or use count instead of array"
// +kubebuilder:validation:XValidation:rule="!has(self.array) || self.tasks.all(t, !(has(t.daemon) && t.daemon) && (!has(t.secretEnv) || size(t.secretEnv) == 0))",message="array: the task of an array has neither daemon nor secretEnv; omit them, or use count instead of array"
type TaskGroupDefinition struct {
	// Name of the group, unique within its job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	TaskGroupTemplate `json:",inline"`
}

// TaskGroupTemplate has the fields that a group of a Job shares with the kind TaskGroup.
type TaskGroupTemplate struct {
	// Count is the number of replicas. Each replica runs every task of the group on one robot.
	// Replicas use different robots while there are enough.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=1
	Count *int32 `json:"count,omitempty"`

	// Array runs the only task of the group once for each index, instead of count. If empty, the
	// group has replicas.
	// +optional
	Array *Array `json:"array,omitempty"`

	// InitTasks run one after another, on the same robot, before the tasks start. An init task
	// with daemon: true is started in its turn and not waited for.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	InitTasks []TaskDefinition `json:"initTasks,omitempty" patchStrategy:"merge" patchMergeKey:"name"`

	// Tasks of each replica. They run in parallel.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Tasks []TaskDefinition `json:"tasks" patchStrategy:"merge" patchMergeKey:"name"`

	// Constraints that a robot must satisfy, all of them.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Constraints []Constraint `json:"constraints,omitempty"`

	// RestartPolicy defines when a failed task runs again on the same robot. If empty: never for
	// batch and sysbatch; for service and system 2 restarts in 30m, 15s after the end.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`

	// ReschedulePolicy defines when a failed task runs again on another robot. If empty, a
	// service is rescheduled without limit, with an exponential delay from 30s to 1h.
	// +optional
	ReschedulePolicy *ReschedulePolicy `json:"reschedulePolicy,omitempty"`

	// EphemeralDisk is a directory on the robot that the tasks of a replica share. Its path is in
	// the variable K8S4R_ALLOC_DIR. If empty, there is none.
	// +optional
	EphemeralDisk *EphemeralDisk `json:"ephemeralDisk,omitempty"`

	// Meta holds values of the user. They take precedence over those of the Job.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Meta map[string]string `json:"meta,omitempty"`

	// Gang places all replicas together or none. A gang has at most 128 replicas and 500 tasks.
	// +optional
	Gang bool `json:"gang,omitempty"`

	// Placement defines how replicas are distributed over the robots.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// Update defines how a changed definition is rolled out.
	// +optional
	Update *Update `json:"update,omitempty"`
}

// Stage returns the position of a task in the start order of its replica, or 0 if there are no init
// tasks.
func (g *TaskGroupTemplate) Stage(name string) int32 {
	if len(g.InitTasks) == 0 {
		return 0
	}
	for i := range g.InitTasks {
		if g.InitTasks[i].Name == name {
			return int32(i) + 1
		}
	}
	return int32(len(g.InitTasks)) + 1
}

// TaskDefinitions returns the definitions of all tasks of a replica, init tasks first.
func (g *TaskGroupTemplate) TaskDefinitions() []*TaskDefinition {
	out := make([]*TaskDefinition, 0, g.TasksPerReplica())
	for i := range g.InitTasks {
		out = append(out, &g.InitTasks[i])
	}
	for i := range g.Tasks {
		out = append(out, &g.Tasks[i])
	}
	return out
}

// TasksPerReplica returns the number of tasks of a replica, including init tasks.
func (g *TaskGroupTemplate) TasksPerReplica() int { return len(g.InitTasks) + len(g.Tasks) }

// HasStages reports whether some tasks of a replica start or stop depending on others.
func (g *TaskGroupTemplate) HasStages() bool {
	return len(g.InitTasks) > 0 || slices.ContainsFunc(g.Tasks, func(t TaskDefinition) bool { return t.Daemon })
}

// EphemeralDisk is a directory on the robot that the tasks of a replica share.
//
// +kubebuilder:validation:XValidation:rule="!has(self.migrate) || !self.migrate",message="migrate is not supported: pass data that must survive as an output or through an artifact store, and omit migrate"
type EphemeralDisk struct {
	// Migrate must be false: data is not moved between robots.
	// +optional
	Migrate bool `json:"migrate,omitempty"`
	// SizeMB is the size in megabytes (1,000,000 bytes) that is reserved on the robot's disk. A
	// replica that uses more fails with the reason DiskQuotaExceeded. If 0, nothing is reserved
	// and the size is not limited.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	SizeMB int64 `json:"sizeMB,omitempty"`
	// Sticky prefers the robot that the replica was on last. The directory is kept there for a
	// week.
	// +optional
	Sticky bool `json:"sticky,omitempty"`
}

// SizeInBytes returns the number of bytes to reserve for the replica; 0 if none.
func (d *EphemeralDisk) SizeInBytes() int64 {
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

// Placement defines how the replicas of a group are distributed over the robots.
type Placement struct {
	// Strategy spread uses as many robots as possible, pack as few as possible.
	// +optional
	// +kubebuilder:validation:Enum=spread;pack
	// +kubebuilder:default=spread
	Strategy string `json:"strategy,omitempty"`
	// Affinity terms attract replicas to robots.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Affinity []AffinityTerm `json:"affinity,omitempty"`
	// AntiAffinity terms keep replicas away from robots.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	AntiAffinity []AffinityTerm `json:"antiAffinity,omitempty"`
}

// AffinityTerm selects a set of robots and gives it a weight.
//
// +kubebuilder:validation:XValidation:rule="has(self.robotLabels) != has(self.taskGroup)",message="set exactly one of robotLabels and taskGroup"
type AffinityTerm struct {
	// RobotLabels selects the robots that have all of these labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	RobotLabels map[string]string `json:"robotLabels,omitempty"`
	// TaskGroup selects the robots on which tasks of this group of the same job run.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TaskGroup *string `json:"taskGroup,omitempty"`
	// Weight of the term relative to the others, from 1 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=50
	Weight int32 `json:"weight,omitempty"`
}

// The strategies of a JobUpdate.
const (
	UpdateImmediate = "Immediate"
	UpdateRollout   = "Rollout"
)

// JobUpdate defines what a change of a job's definition does.
type JobUpdate struct {
	// Strategy Immediate changes the tasks at once, each group by its own update. With Rollout a change
	// of what the tasks run makes a revision and changes no task: a Rollout does. Rollout needs the type
	// service, system or sysbatch.
	// +optional
	// +kubebuilder:validation:Enum=Immediate;Rollout
	// +kubebuilder:default=Immediate
	Strategy string `json:"strategy,omitempty"`
}

// Update defines how a changed definition is rolled out.
type Update struct {
	// MaxParallel is the number of replicas that change at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Maximum=1000000
	MaxParallel int32 `json:"maxParallel,omitempty"`
	// MinHealthyTime is the time that a changed replica must run before the next one changes. If
	// empty, 10s.
	// +optional
	MinHealthyTime *Duration `json:"minHealthyTime,omitempty"`
}

// Requeue returns ended tasks of a job to pending.
type Requeue struct {
	// Generation of the request. Increase it to requeue once more.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Generation int64 `json:"generation"`
	// Scope selects all tasks, or only the failed ones. It must not be failed if tasks are named.
	// +optional
	// +kubebuilder:validation:Enum=all;failed
	// +kubebuilder:default=all
	Scope string `json:"scope,omitempty"`
	// Tasks are the names of Task objects to requeue. If empty, scope decides.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Tasks []string `json:"tasks,omitempty"`
}

// FailurePolicy bounds how many tasks may fail.
type FailurePolicy struct {
	// MaxFailedPercent is the share of failed tasks, in percent, at which the job fails.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	MaxFailedPercent *int32 `json:"maxFailedPercent,omitempty"`
	// SoftFailLimit is the number of different robots on which a task must fail before it is
	// failed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=3
	// +kubebuilder:validation:Maximum=1000000
	SoftFailLimit *int32 `json:"softFailLimit,omitempty"`
	// BlocklistAfter is the number of tasks of a group that must fail on a robot before the group
	// no longer uses it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=3
	// +kubebuilder:validation:Maximum=1000000
	BlocklistAfter *int32 `json:"blocklistAfter,omitempty"`
}

// The values of disconnect.reconcile, which decides between the original attempt of a robot that
// is back and the replacement.
const (
	ReconcileBestScore       = "best_score"
	ReconcileKeepOriginal    = "keep_original"
	ReconcileKeepReplacement = "keep_replacement"
	ReconcileLongestRunning  = "longest_running"
)

// Disconnect defines what happens to tasks whose robot is disconnected.
type Disconnect struct {
	// LostAfter is the time after the last contact at which the robot is lost for the task. A
	// value below the manager's --offline-after has an effect only if the broker has reported
	// that the connection broke.
	// +optional
	// +kubebuilder:default="5m"
	LostAfter *Duration `json:"lostAfter,omitempty"`
	// StopOnRobotAfter makes the robot stop the task itself if no heartbeat was acknowledged for
	// that long. No replacement starts before that time, the task's killTimeout and a margin are
	// over, so that two attempts never run at the same time. If empty, a replacement may run at
	// the same time as the lost attempt. Legacy agents do not support it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?$') || size(self) == 0 || duration(self) >= duration('1s')",message="must be at least 1s; omit it if the robot does not have to stop the task by itself"
	StopOnRobotAfter *Duration `json:"stopOnRobotAfter,omitempty"`
	// DispatchTimeout is how long a connected robot may take to accept a task. It starts with the
	// first dispatch, ends when the robot has recorded the attempt, and does not count while a
	// Secret of the task is missing. After it the robot is lost for the task. It applies to robots
	// whose status.agent.answersDispatches is true, and to tasks that are created later.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?$') || size(self) == 0 || (duration(self) >= duration('10s') && duration(self) <= duration('1h'))",message="must be from 10s to 1h"
	DispatchTimeout *Duration `json:"dispatchTimeout,omitempty"`
	// Replace creates a new attempt on another robot when the robot is lost. If false, the task
	// waits until its robot is back, or it is evicted or canceled.
	// +optional
	// +kubebuilder:default=true
	Replace *bool `json:"replace,omitempty"`
	// Reconcile decides which attempt is kept if the lost robot comes back while a replacement
	// exists: the original attempt, the replacement, the one that has run for longer, or the one
	// on the robot that placement prefers.
	// +optional
	// +kubebuilder:validation:Enum=best_score;keep_original;keep_replacement;longest_running
	// +kubebuilder:default=keep_original
	Reconcile string `json:"reconcile,omitempty"`
}

// TaskCounts counts tasks by state. Each task is counted in exactly one state. Tasks that do not
// exist yet count as pending.
type TaskCounts struct {
	// TotalTasks is the number of all tasks.
	TotalTasks int32 `json:"totalTasks"`
	// PendingTasks wait for a robot.
	PendingTasks int32 `json:"pendingTasks"`
	// DispatchingTasks have a robot that has not confirmed them yet.
	// +optional
	DispatchingTasks int32 `json:"dispatchingTasks,omitempty"`
	// RunningTasks run on a robot.
	RunningTasks int32 `json:"runningTasks"`
	// UnknownTasks are on robots that are disconnected.
	// +optional
	UnknownTasks int32 `json:"unknownTasks,omitempty"`
	// ExitedTasks have failed; the manager has not decided yet what follows.
	// +optional
	ExitedTasks int32 `json:"exitedTasks,omitempty"`
	// SoftFailedTasks have failed on one robot and wait for another.
	// +optional
	SoftFailedTasks int32 `json:"softFailedTasks,omitempty"`
	// PausedTasks are paused by the user.
	// +optional
	PausedTasks int32 `json:"pausedTasks,omitempty"`
	// SucceededTasks have completed.
	SucceededTasks int32 `json:"succeededTasks"`
	// FailedTasks have failed and are not retried.
	FailedTasks int32 `json:"failedTasks"`
	// CanceledTasks were canceled.
	// +optional
	CanceledTasks int32 `json:"canceledTasks,omitempty"`
	// UnconfirmedStops is the number of tasks that were ended without their robots, such as by a cancel
	// while a robot was out of contact: their processes may still be running. A range of an array
	// counts for its indexes that have no end, because the robot may run all of them, one after
	// another. These tasks are counted in their state as well.
	// +optional
	UnconfirmedStops int32 `json:"unconfirmedStops,omitempty"`
}

// JobStatus is the observed state of a job. The manager's job controller writes it, except the
// condition Archived, which the archive controller writes.
type JobStatus struct {
	// State of the job.
	// +optional
	// +kubebuilder:validation:Enum=under-construction;pending;running;pause-requested;paused;cancel-requested;canceled;requeueing;completed;failed
	State string `json:"state,omitempty"`
	// Status has the same value as state. Deprecated: use state.
	// +optional
	Status string `json:"status,omitempty"`
	// StatusDescription describes the last change of the state and its reason.
	// +optional
	StatusDescription string `json:"statusDescription,omitempty"`

	// StateChanges counts the changes of state. TaskGroups refer to it in observedStateChanges.
	// +optional
	StateChanges int64 `json:"stateChanges,omitempty"`

	TaskCounts `json:",inline"`

	// StartedAt is the time at which the first task started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// CompletedAt is the time at which the job completed, failed or was canceled.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// CurrentRevision is the revision that tasks have which no Rollout has changed. A Rollout that
	// completes makes its revision the current one. Zero for a job of type batch.
	// +optional
	CurrentRevision int64 `json:"currentRevision,omitempty"`
	// UpdateRevision is the revision of the spec. Zero for a job of type batch.
	// +optional
	UpdateRevision int64 `json:"updateRevision,omitempty"`
	// Requeue is the last spec.requeue that was applied.
	// +optional
	Requeue *RequeueStatus `json:"requeue,omitempty"`
	// Blocklist lists the robots that a group no longer uses because too many of its tasks failed
	// there.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	Blocklist []BlockedRobot `json:"blocklist,omitempty"`
	// Conditions are Complete, Failed and Suspended, and Archived if the manager has an archive.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RequeueStatus is a requeue that was applied.
type RequeueStatus struct {
	Requeue `json:",inline"`
	// FromState is the state in which the job was requeued.
	// +optional
	FromState string `json:"fromState,omitempty"`
	// RemainingFailedTasks is the number of failed tasks that were not requeued. They alone do
	// not fail the job again before the requeued tasks have ended.
	// +optional
	RemainingFailedTasks int32 `json:"remainingFailedTasks,omitempty"`
}

// BlockedRobot is a robot that a group no longer uses.
type BlockedRobot struct {
	// TaskGroup is the name of the group in the job.
	TaskGroup string `json:"taskGroup"`
	// Robot is the name of the robot.
	Robot string `json:"robot"`
}
