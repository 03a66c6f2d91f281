package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Job runs Pods to an end together.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=k8s4r"
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=jobs,singular=job,shortName=vcjob;vj
// +kubebuilder:printcolumn:name="STATUS",type=string,JSONPath=`.status.state.phase`
// +kubebuilder:printcolumn:name="minAvailable",type=integer,JSONPath=`.status.minAvailable`
// +kubebuilder:printcolumn:name="RUNNINGS",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="QUEUE",type=string,JSONPath=`.spec.queue`,priority=1
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	// +optional
	Spec JobSpec `json:"spec,omitempty"`
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

// JobSpec is which Pods run, and what happens when one ends.
type JobSpec struct {
	// SchedulerName of the Pods that name none. Empty: volcano.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// MinAvailable is how many Pods must run, or have ended, for the Job to be
	// Running. 0: as many as its tasks need.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// Volumes that every container mounts.
	// +optional
	Volumes []VolumeSpec `json:"volumes,omitempty"`
	// Tasks are the sorts of Pods of the Job.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +patchMergeKey=name
	// +patchStrategy=merge
	Tasks []TaskSpec `json:"tasks,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Policies say what to do when something happens to a Pod of any task. Those of
	// the task count first.
	// +optional
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// Plugins of the Job and their arguments. There are env and svc.
	// +optional
	Plugins map[string][]string `json:"plugins,omitempty"`
	// RunningEstimate is how long the user believes that the Job runs. A note to
	// people.
	// +optional
	RunningEstimate *metav1.Duration `json:"runningEstimate,omitempty"`
	// Queue that the Job's Pods name in a label. No Queue object is needed.
	// +optional
	// +kubebuilder:default=default
	Queue string `json:"queue,omitempty"`
	// MaxRetry is how often the Job may restart before it has failed. 0 reads as 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// TTLSecondsAfterFinished is how long the Job is kept after it has completed,
	// failed or was terminated, and where the manager keeps an archive until it is in
	// there. Not set: for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// PriorityClassName of the Pods that name none.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// MinSuccess is how many Pods must succeed for the Job to complete; then it does
	// so at once. Not set: minAvailable, when all have ended.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinSuccess *int32 `json:"minSuccess,omitempty"`
	// NetworkTopology is for a scheduler that knows the network.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
}

// VolumeSpec is a claim that every container of the Job mounts.
type VolumeSpec struct {
	// MountPath in the containers. Must not contain a colon.
	MountPath string `json:"mountPath"`
	// VolumeClaimName of a claim that exists, or of the one that is made of
	// volumeClaim. Empty: a name of the Job's own.
	// +optional
	VolumeClaimName string `json:"volumeClaimName,omitempty"`
	// VolumeClaim to make. Not set: the named one is used.
	// +optional
	VolumeClaim *corev1.PersistentVolumeClaimSpec `json:"volumeClaim,omitempty"`
}

// TaskSpec is one sort of Pods of a Job.
type TaskSpec struct {
	// Name of the task. Empty: default and its place in the list.
	// +optional
	Name string `json:"name,omitempty"`
	// Replicas is how many of them there are.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`
	// MinAvailable is how many of them must run, or have succeeded. Not set: all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinAvailable *int32 `json:"minAvailable,omitempty"`
	// Template of the Pods.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`
	// Policies say what to do when something happens to a Pod of this task.
	// +optional
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// TopologyPolicy is for a scheduler that knows NUMA nodes.
	// +optional
	// +kubebuilder:validation:Enum=none;best-effort;restricted;single-numa-node
	TopologyPolicy string `json:"topologyPolicy,omitempty"`
	// MaxRetry is how often the containers of the task's Pods may be restarted, all
	// in all, before the event TaskFailed. 0 reads as 3.
	// +optional
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// DependsOn holds the Pods back until other tasks are ready.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// PartitionPolicy divides the Pods into partitions that are restarted as one.
	// +optional
	PartitionPolicy *PartitionPolicySpec `json:"partitionPolicy,omitempty"`
}

// Iteration says how many of the named tasks must be ready.
//
// +kubebuilder:validation:Enum=any;all
type Iteration string

// The iterations.
const (
	// IterationAny: one of them.
	IterationAny Iteration = "any"
	// IterationAll: each of them.
	IterationAll Iteration = "all"
)

// DependsOn names the tasks that must be ready: minAvailable of their Pods have
// succeeded, or run with all containers ready.
type DependsOn struct {
	// Name of each of the tasks.
	// +optional
	Name []string `json:"name,omitempty"`
	// Iteration says how many of them. Empty: all.
	// +optional
	Iteration Iteration `json:"iteration,omitempty"`
}

// PartitionPolicySpec divides the Pods of a task into partitions of one size.
type PartitionPolicySpec struct {
	// TotalPartitions that there are.
	TotalPartitions int32 `json:"totalPartitions"`
	// PartitionSize is how many Pods each has.
	PartitionSize int32 `json:"partitionSize"`
	// NetworkTopology is for a scheduler that knows the network.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// MinPartitions is how many must be ready. 0: all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinPartitions int32 `json:"minPartitions,omitempty"`
}

// NetworkTopologySpec is kept for a scheduler that knows the network.
type NetworkTopologySpec struct {
	// Mode says whether the topology must be met.
	// +optional
	// +kubebuilder:default=hard
	// +kubebuilder:validation:Enum=hard;soft
	Mode string `json:"mode,omitempty"`
	// HighestTierAllowed that Pods may be spread over.
	// +optional
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
	// HighestTierName is the same, by its name.
	// +optional
	HighestTierName string `json:"highestTierName,omitempty"`
}

// JobPhase is where a Job stands.
//
// +kubebuilder:validation:Enum=Pending;Aborting;Aborted;Running;Restarting;Completing;Completed;Terminating;Terminated;Failed
type JobPhase string

// The phases of a Job. The rules between them stand in internal/core/lifecycle.
const (
	JobPending     JobPhase = "Pending"
	JobAborting    JobPhase = "Aborting"
	JobAborted     JobPhase = "Aborted"
	JobRunning     JobPhase = "Running"
	JobRestarting  JobPhase = "Restarting"
	JobCompleting  JobPhase = "Completing"
	JobCompleted   JobPhase = "Completed"
	JobTerminating JobPhase = "Terminating"
	JobTerminated  JobPhase = "Terminated"
	JobFailed      JobPhase = "Failed"
)

// JobState is a phase and how it came to it.
type JobState struct {
	// Phase of the Job.
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// Reason in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the Job came to this phase.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
}

// AnnotationArchived is set on a finished Job that is recorded in the archive, to its ArchiveMarker
// at that time. It is an annotation because the status of Volcano's kind has no field for it.
const AnnotationArchived = "batch.k8s4r.io/archived"

// ArchiveMarker returns the value of AnnotationArchived for the Job's current phase.
func (j *Job) ArchiveMarker() string {
	return string(j.Status.State.Phase) + "@" + j.Status.State.LastTransitionTime.UTC().Format(time.RFC3339)
}

// IsArchived reports whether the current phase of the Job is in the archive.
func (j *Job) IsArchived() bool { return j.Annotations[AnnotationArchived] == j.ArchiveMarker() }

// JobCondition is one phase that the Job has been in.
type JobCondition struct {
	// Status is the phase.
	Status JobPhase `json:"status"`
	// LastTransitionTime is when the Job came to it.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// TaskState counts the Pods of a task.
type TaskState struct {
	// Phase is how many of them are in each phase.
	// +optional
	Phase map[corev1.PodPhase]int32 `json:"phase,omitempty"`
}

// JobStatus is written by the vcjob controller alone.
type JobStatus struct {
	// State is where the Job stands.
	// +optional
	State JobState `json:"state,omitempty"`
	// MinAvailable that the counts are held against.
	// +optional
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// TaskStatusCount counts the Pods of each task.
	// +optional
	TaskStatusCount map[string]TaskState `json:"taskStatusCount,omitempty"`
	// Pending Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int32 `json:"pending,omitempty"`
	// Running Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Running int32 `json:"running,omitempty"`
	// Succeeded Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed,omitempty"`
	// Terminating Pods: they are deleted and not yet gone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Terminating int32 `json:"terminating,omitempty"`
	// Unknown Pods: their node does not respond.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int32 `json:"unknown,omitempty"`
	// Version grows each time that all Pods are stopped.
	// +optional
	Version int32 `json:"version,omitempty"`
	// RetryCount is how often the Job was restarted.
	// +optional
	RetryCount int32 `json:"retryCount,omitempty"`
	// RunningDuration is the time from the Job's creation to its end.
	// +optional
	RunningDuration *metav1.Duration `json:"runningDuration,omitempty"`
	// ControlledResources are the objects that the Job has made beside Pods.
	// +optional
	ControlledResources map[string]string `json:"controlledResources,omitempty"`
	// Conditions are the phases that the Job has been in, the newest last.
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty"`
}
