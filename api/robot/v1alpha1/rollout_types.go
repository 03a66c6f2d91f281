package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rollout changes a Job from one revision to another in waves, or the agents of robots to a version, and
// stops by itself if too many robots fail.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=rollouts,singular=rollout,shortName=rro,categories=k8s4r
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target.name`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.target.agent.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Wave",type=string,JSONPath=`.status.currentWave`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.counts.total`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.counts.updated`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.counts.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.message`,priority=1
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines what is changed, in which order, and when the change stops.
	Spec RolloutSpec `json:"spec"`
	// Status is the observed progress.
	// +optional
	Status RolloutStatus `json:"status,omitempty"`
}

// RolloutList is a list of Rollouts.
//
// +kubebuilder:object:root=true
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Rollout `json:"items"`
}

// The values of spec.desiredState of a Rollout.
const (
	RolloutDesiredRunning  = "running"
	RolloutDesiredPaused   = "paused"
	RolloutDesiredAborted  = "aborted"
	RolloutDesiredReverted = "reverted"
)

// The values of spec.onAbort of a Rollout.
const (
	OnAbortPause  = "pause"
	OnAbortRevert = "revert"
)

// ApprovalManual is the value of approval of a wave that waits for a user.
const ApprovalManual = "manual"

// RolloutSpec defines what a Rollout changes. A unit below is a robot if the target is the agent or a Job of
// type system or sysbatch, and a replica if it is a Job of type service.
//
// +kubebuilder:validation:XValidation:rule="self.target == oldSelf.target",message="target: a Rollout changes one target to one revision; create another Rollout"
// +kubebuilder:validation:XValidation:rule="(has(self.target.kind) && self.target.kind == 'Agent') || !has(self.robotSelector)",message="robotSelector: is for target.kind Agent only; a Job selects its robots by its constraints, and a wave by its own robotSelector"
// +kubebuilder:validation:XValidation:rule="has(self.robotSelector) == has(oldSelf.robotSelector) && (!has(self.robotSelector) || self.robotSelector == oldSelf.robotSelector)",message="robotSelector: cannot change; create another Rollout"
// +kubebuilder:validation:XValidation:rule="has(self.waves[self.waves.size() - 1].percent) && self.waves[self.waves.size() - 1].percent == 100",message="waves: the last wave must have percent: 100, so that every robot is covered; give it approval: manual to decide later"
// +kubebuilder:validation:XValidation:rule="self.waves.map(w, w.name) == oldSelf.waves.map(w, w.name) && self.waves.map(w, has(w.percent) ? w.percent : 0) == oldSelf.waves.map(w, has(w.percent) ? w.percent : 0) && self.waves.map(w, has(w.count) ? w.count : 0) == oldSelf.waves.map(w, has(w.count) ? w.count : 0) && self.waves.map(w, has(w.approval)) == oldSelf.waves.map(w, has(w.approval)) && self.waves.map(w, has(w.robotSelector)) == oldSelf.waves.map(w, has(w.robotSelector)) && self.waves.all(w, !has(w.robotSelector) || oldSelf.waves.exists(o, o.name == w.name && has(o.robotSelector) && o.robotSelector == w.robotSelector))",message="waves: names, order, robotSelector, percent, count and approval cannot change; create another Rollout"
// +kubebuilder:validation:XValidation:rule="!has(self.approvedWaves) || self.approvedWaves.all(w, self.waves.exists(x, x.name == w))",message="approvedWaves: must be names of waves"
type RolloutSpec struct {
	// Target is what is changed.
	Target RolloutTarget `json:"target"`

	// RobotSelector includes the robots of the namespace that have all of these labels, in spec.labels or
	// metadata.labels. If empty, all. For target.kind Agent only.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	RobotSelector map[string]string `json:"robotSelector,omitempty"`

	// Waves are changed one after another. A unit belongs to the first wave that includes it. The last
	// wave must have percent 100, so that the Rollout covers every unit; with approval manual it waits.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Waves []RolloutWave `json:"waves"`

	// Rate bounds how fast units are changed. If empty, only maxUnavailable does.
	// +optional
	Rate *RolloutRate `json:"rate,omitempty"`

	// MaxUnavailable is how many units of a group may be changing at the same time: a number, or a
	// percentage of all. If empty, update.maxParallel of the group; if both are set, the smaller. For
	// target.kind Agent it bounds the robots in contact; if empty, all of a wave.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 1 && int(self) <= 1000000 : string(self).matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable: must be a number from 1 to 1000000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// AbortAt is when the Rollout is aborted by the units of all waves. If empty, only the waves decide.
	// +optional
	AbortAt *RolloutAbort `json:"abortAt,omitempty"`

	// OnAbort pause leaves all units as they are when the Rollout is aborted. With revert they return
	// to the revision of before.
	// +optional
	// +kubebuilder:validation:Enum=pause;revert
	// +kubebuilder:default=pause
	OnAbort string `json:"onAbort,omitempty"`

	// Deadline is how long a unit may take until it is healthy with the new revision. After it the unit has
	// failed, also if its robot has lost contact meanwhile, until it comes back healthy. If empty, 10m.
	// +optional
	Deadline *Duration `json:"deadline,omitempty"`

	// Retry is how often a failed unit is tried again. If 0, never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Retry int32 `json:"retry,omitempty"`

	// MaxWaiting is how long a wave waits for units whose robots are out of contact, after all others
	// have finished. These units are changed later if follow is true. If empty, 10m.
	// +optional
	MaxWaiting *Duration `json:"maxWaiting,omitempty"`

	// Follow changes units of finished waves also later: robots that come back, or that join.
	// +optional
	// +kubebuilder:default=true
	Follow *bool `json:"follow,omitempty"`

	// IgnoreWindows interrupts tasks also while the maintenance windows of their robots are closed. A change
	// to true needs the verb ignorewindows on the Rollout.
	// +optional
	IgnoreWindows bool `json:"ignoreWindows,omitempty"`

	// Prefetch lets robots fetch the artifacts that have a checksum, and the images, of the new revision
	// before they are changed, also while the Rollout waits for an approval. No wave waits for it.
	// +optional
	Prefetch bool `json:"prefetch,omitempty"`

	// PrefetchLimits bound what robots fetch in advance. If empty, its defaults.
	// +optional
	PrefetchLimits *RolloutPrefetchLimits `json:"prefetchLimits,omitempty"`

	// DesiredState is the state that the user requests. If empty, running.
	// +optional
	// +kubebuilder:validation:Enum=running;paused;aborted;reverted
	DesiredState string `json:"desiredState,omitempty"`

	// ApprovedWaves are the names of the waves that may start although they need an approval. A change
	// needs the verb approve on the Rollout.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	ApprovedWaves []string `json:"approvedWaves,omitempty"`
}

// RolloutTarget is what a Rollout changes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.kind) && self.kind == 'Agent') || has(self.name)",message="name: is required; it is the name of a Job"
// +kubebuilder:validation:XValidation:rule="(has(self.kind) && self.kind == 'Agent') || !has(self.agent)",message="agent: is for kind Agent only; set kind: Agent and remove name, or remove agent"
// +kubebuilder:validation:XValidation:rule="!(has(self.kind) && self.kind == 'Agent') || has(self.agent)",message="agent: is required for kind Agent; it has the version and the artifacts"
// +kubebuilder:validation:XValidation:rule="!(has(self.kind) && self.kind == 'Agent') || !has(self.name) && (!has(self.revision) || self.revision == 0)",message="name, revision: an Agent has none; remove them"
type RolloutTarget struct {
	// Kind of what is changed: the tasks of a Job, or the program k8s4r-agent on robots. Agent needs the verb
	// updateagents on robots.
	// +optional
	// +kubebuilder:validation:Enum=Job;Agent
	// +kubebuilder:default=Job
	Kind string `json:"kind,omitempty"`
	// Name of the Job, in the namespace of the Rollout. Not for kind Agent.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Revision of the Job. If 0, the newest one when the Rollout starts. Not for kind Agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Revision int64 `json:"revision,omitempty"`
	// Agent is the version that robots are updated to. For kind Agent only.
	// +optional
	Agent *AgentRelease `json:"agent,omitempty"`
}

// RolloutWave is a part of the units.
//
// +kubebuilder:validation:XValidation:rule="(has(self.robotSelector) ? 1 : 0) + (has(self.percent) ? 1 : 0) + (has(self.count) ? 1 : 0) == 1",message="set exactly one of robotSelector, percent and count"
type RolloutWave struct {
	// Name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// RobotSelector includes the robots that have all of these labels, in spec.labels or
	// metadata.labels of the Robot. It is not possible for a Job of type service.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	RobotSelector map[string]string `json:"robotSelector,omitempty"`
	// Percent includes as many units as are needed until this percentage of all is included in this wave
	// and the ones before, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
	// Count includes as many units as are needed until so many are included in this wave and the ones
	// before.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Count *int32 `json:"count,omitempty"`
	// Pause is the time between the end of the wave and the start of the next one. If empty, none.
	// +optional
	Pause *Duration `json:"pause,omitempty"`
	// Approval manual starts the wave only after its name was added to approvedWaves.
	// +optional
	// +kubebuilder:validation:Enum=manual
	Approval string `json:"approval,omitempty"`
	// HealthyFor is how long a unit must run with the new revision until it counts as updated. If empty,
	// update.minHealthyTime of its group, or for an agent 10s; if both are set, the longer. The server must
	// also have received a message of its robot after that.
	// +optional
	HealthyFor *Duration `json:"healthyFor,omitempty"`
	// AbortAt is when the Rollout is aborted by the units of this wave. If empty, only that of the
	// Rollout counts.
	// +optional
	AbortAt *RolloutAbort `json:"abortAt,omitempty"`
}

// RolloutRate bounds how fast units are changed.
//
// +kubebuilder:validation:XValidation:rule="has(self.growthPercent) == has(self.growAfter)",message="set both growthPercent and growAfter, or neither"
type RolloutRate struct {
	// PerMinute is how many units may be changed in a minute.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	PerMinute int32 `json:"perMinute"`
	// GrowthPercent is by how much the rate grows each time that growAfter more units were updated: with
	// 100 it doubles. If empty, the rate stays.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	GrowthPercent *int32 `json:"growthPercent,omitempty"`
	// GrowAfter is the number of updated units after which the rate grows.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	GrowAfter *int32 `json:"growAfter,omitempty"`
}

// RolloutAbort is when a Rollout is aborted.
type RolloutAbort struct {
	// Percent of the finished units, which are updated or have failed, that must have failed.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`
	// MinFinished is how many units must have finished before the percentage counts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=1
	MinFinished int32 `json:"minFinished,omitempty"`
}

// RolloutStatus is the observed progress of a Rollout. Only the manager's rollout controller writes it.
type RolloutStatus struct {
	// Phase of the Rollout.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Progressing;WaitingForApproval;Pausing;Paused;Aborted;Reverting;Reverted;Complete;Superseded
	Phase string `json:"phase,omitempty"`
	// Message describes the phase.
	// +optional
	Message string `json:"message,omitempty"`
	// Revision that the target is changed to. Zero until it is known, and for the agent.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Version that agents are updated to. Empty until the Rollout has started, and for a Job.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// TargetUID is the UID of the target when the Rollout started. The revisions of another object of the
	// same name are not those of this Rollout.
	// +optional
	TargetUID types.UID `json:"targetUID,omitempty"`
	// FromRevision is the revision of the target when the Rollout started.
	// +optional
	FromRevision int64 `json:"fromRevision,omitempty"`
	// CurrentWave is the name of the wave that is being changed. Empty before the first one and at the
	// end.
	// +optional
	CurrentWave string `json:"currentWave,omitempty"`
	// Waves are the waves that have started, in order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Waves []RolloutWaveStatus `json:"waves,omitempty"`
	// Counts of all units.
	// +optional
	Counts RolloutCounts `json:"counts,omitempty"`
	// Prefetched is how many robots have fetched what the new revision needs and they lacked.
	// +optional
	Prefetched int32 `json:"prefetched,omitempty"`
	// FailedUnits are up to 100 units that have failed, and why.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	FailedUnits []RolloutFailure `json:"failedUnits,omitempty"`
	// StartedAt is when the first wave started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// CompletedAt is when the Rollout ended.
	// +optional
	CompletedAt *metav1.MicroTime `json:"completedAt,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Complete and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The phases of a Rollout.
const (
	RolloutPending            = "Pending"
	RolloutProgressing        = "Progressing"
	RolloutWaitingForApproval = "WaitingForApproval"
	RolloutPausing            = "Pausing"
	RolloutPaused             = "Paused"
	RolloutAborted            = "Aborted"
	RolloutReverting          = "Reverting"
	RolloutReverted           = "Reverted"
	RolloutComplete           = "Complete"
	RolloutSuperseded         = "Superseded"
)

// RolloutWaveStatus is the observed progress of a wave.
type RolloutWaveStatus struct {
	// Name of the wave.
	Name string `json:"name"`
	// Bound is the end of the positions of the units that belong to this wave or one before. A position is
	// a hash from 0 to 4294967295 of the unit and the Rollout.
	Bound int64 `json:"bound"`
	// AdmittedBound is the end of the positions of the units that are changed now. It grows up to bound as
	// fast as the rate allows.
	AdmittedBound int64 `json:"admittedBound"`
	// AdmittedAt is the time up to which the rate is used up by admittedBound.
	// +optional
	AdmittedAt *metav1.MicroTime `json:"admittedAt,omitempty"`
	// StartedAt is when the wave started.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// FinishedAt is when all of its units had finished, or were left to follow.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// WaitingSince is since when the wave waits only for units whose robots are out of contact, or often
	// lose it.
	// +optional
	WaitingSince *metav1.MicroTime `json:"waitingSince,omitempty"`
	// Retries is how often the failed units of the wave were tried again.
	// +optional
	Retries int32 `json:"retries,omitempty"`
	// RetriedAt is when the failed units were last tried again.
	// +optional
	RetriedAt *metav1.MicroTime `json:"retriedAt,omitempty"`

	RolloutCounts `json:",inline"`
}

// RolloutCounts counts units by their progress. Each unit is counted once.
type RolloutCounts struct {
	// Total number of units.
	Total int32 `json:"total"`
	// Waiting units have the old revision and are not changed yet.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// OutOfContact units have not begun to change, and their robots are out of contact, or take no new tasks.
	// +optional
	OutOfContact int32 `json:"outOfContact,omitempty"`
	// OutsideWindow units wait for a maintenance window of their robots.
	// +optional
	OutsideWindow int32 `json:"outsideWindow,omitempty"`
	// Held units wait for people at their robots, who do not want their tasks to be interrupted.
	// +optional
	Held int32 `json:"held,omitempty"`
	// Updating units have the new revision, or are being stopped to get it, and are not healthy yet.
	// +optional
	Updating int32 `json:"updating,omitempty"`
	// Updated units are healthy with the new revision.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// Failed units have failed with the new revision, or have exceeded the deadline.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// RolloutFailure is a unit that has failed.
type RolloutFailure struct {
	// Unit is the name of the robot, or the group and the index of the replica.
	Unit string `json:"unit"`
	// Wave is the name of its wave.
	Wave string `json:"wave"`
	// Task is the name of the Task that failed. Empty if the unit exceeded the deadline.
	// +optional
	Task string `json:"task,omitempty"`
	// Reason of the failure.
	Reason string `json:"reason"`
	// Message describes the failure.
	// +optional
	Message string `json:"message,omitempty"`
}
