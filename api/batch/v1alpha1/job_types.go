package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The limits of a Job. The schema, the admission policies and the controller check them.
const (
	// MaxTaskReplicas is the highest number of Pods of a task.
	MaxTaskReplicas = 100_000
	// MaxJobPods is the highest number of Pods of a Job.
	MaxJobPods = 1_000_000
	// MaxTasks is the highest number of tasks of a Job.
	MaxTasks = 1000
	// MaxPolicies is the highest number of policies in a list.
	MaxPolicies = 300
)

// Job runs groups of Pods to completion.
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

	// Spec defines the Pods of the Job.
	// +optional
	Spec JobSpec `json:"spec,omitempty"`
	// Status is the observed state of the Job.
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

// JobSpec defines the Pods of a Job and what happens when they fail.
type JobSpec struct {
	// SchedulerName is the scheduler of Pods whose template sets none.
	// +optional
	// +kubebuilder:default=volcano
	SchedulerName string `json:"schedulerName,omitempty"`
	// MinAvailable is the number of Pods that must be running, or have ended, for the Job to be
	// Running. If 0, the sum of minAvailable of all tasks.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// Volumes are mounted in every container.
	// +optional
	Volumes []VolumeSpec `json:"volumes,omitempty"`
	// Tasks are the groups of equal Pods of the Job.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +patchMergeKey=name
	// +patchStrategy=merge
	Tasks []TaskSpec `json:"tasks,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Policies define the reaction to events of any task. Policies of the task take
	// precedence.
	// +optional
	// +kubebuilder:validation:MaxItems=300
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// Plugins maps the names of plugins to their arguments. There are env, svc, ssh, tensorflow,
	// pytorch, mpi, ray and hcclrank.
	// +optional
	Plugins map[string][]string `json:"plugins,omitempty"`
	// RunningEstimate is the expected duration of the Job. It has no effect.
	// +optional
	RunningEstimate *Duration `json:"runningEstimate,omitempty"`
	// Queue is set as a label on the Pods. The Queue object does not have to exist.
	// +optional
	// +kubebuilder:default=default
	Queue string `json:"queue,omitempty"`
	// MaxRetry is the number of restart requests after which the Job fails. If 0, 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// TTLSecondsAfterFinished is the number of seconds after which a completed, failed or
	// terminated Job is deleted. If the manager has an archive, the Job is kept until it is
	// recorded there. If not set, the Job is kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// PriorityClassName is the priority class of Pods whose template sets none.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// MinSuccess is the number of succeeded Pods at which the Job completes. The other Pods are
	// then stopped. If not set, the Job completes when all Pods have ended and at least
	// minAvailable of them have succeeded.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSuccess *int32 `json:"minSuccess,omitempty"`
	// NetworkTopology is for topology-aware schedulers. It has no effect.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
}

// VolumeSpec is a volume that is mounted in every container of the Job.
type VolumeSpec struct {
	// MountPath is the path in the containers. It must not contain a colon.
	MountPath string `json:"mountPath"`
	// VolumeClaimName is the name of an existing claim, or of the claim that is created from
	// volumeClaim. If empty, the name is derived from the name of the Job. Required without
	// volumeClaim.
	// +optional
	VolumeClaimName string `json:"volumeClaimName,omitempty"`
	// VolumeClaim is the spec of a claim to create. If not set, the claim volumeClaimName must exist.
	// +optional
	VolumeClaim *corev1.PersistentVolumeClaimSpec `json:"volumeClaim,omitempty"`
}

// TaskSpec is a group of equal Pods of a Job.
type TaskSpec struct {
	// Name of the task, unique in the Job. If empty, default followed by the index of the task.
	// +optional
	Name string `json:"name,omitempty"`
	// Replicas is the number of Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Replicas int32 `json:"replicas,omitempty"`
	// MinAvailable is the number of Pods that must be running, or have succeeded. If not set, all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MinAvailable *int32 `json:"minAvailable,omitempty"`
	// Template of the Pods.
	// +optional
	Template corev1.PodTemplateSpec `json:"template,omitempty"`
	// Policies define the reaction to events of this task.
	// +optional
	// +kubebuilder:validation:MaxItems=300
	Policies []LifecyclePolicy `json:"policies,omitempty"`
	// TopologyPolicy is for NUMA-aware schedulers. It has no effect.
	// +optional
	// +kubebuilder:validation:Enum=none;best-effort;restricted;single-numa-node
	TopologyPolicy string `json:"topologyPolicy,omitempty"`
	// MaxRetry is the total number of container restarts in the task's Pods that causes the
	// event TaskFailed. If 0, 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Maximum=1000000
	MaxRetry int32 `json:"maxRetry,omitempty"`
	// DependsOn delays the creation of the Pods until other tasks are ready.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// PartitionPolicy divides the Pods into partitions that are restarted together.
	// +optional
	PartitionPolicy *PartitionPolicySpec `json:"partitionPolicy,omitempty"`
}

// Iteration defines how many of the named tasks must be ready.
//
// +kubebuilder:validation:Enum=any;all
type Iteration string

// The iterations.
const (
	// IterationAny: at least one task.
	IterationAny Iteration = "any"
	// IterationAll: all tasks.
	IterationAll Iteration = "all"
)

// DependsOn names tasks that must be ready: at least minAvailable of their Pods have
// succeeded, or are running with all containers ready.
type DependsOn struct {
	// Name lists the names of the tasks.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Name []string `json:"name,omitempty"`
	// Iteration defines how many of the tasks must be ready. If empty, all.
	// +optional
	Iteration Iteration `json:"iteration,omitempty"`
}

// PartitionPolicySpec divides the Pods of a task into partitions of equal size.
type PartitionPolicySpec struct {
	// TotalPartitions is the number of partitions.
	// +kubebuilder:validation:Maximum=100000
	TotalPartitions int32 `json:"totalPartitions"`
	// PartitionSize is the number of Pods per partition.
	// +kubebuilder:validation:Maximum=100000
	PartitionSize int32 `json:"partitionSize"`
	// NetworkTopology is for topology-aware schedulers. It has no effect.
	// +optional
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
	// MinPartitions is the number of partitions that must be ready. If 0, all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MinPartitions int32 `json:"minPartitions,omitempty"`
}

// NetworkTopologySpec is for topology-aware schedulers. It has no effect.
type NetworkTopologySpec struct {
	// Mode defines whether the topology is required (hard) or preferred (soft).
	// +optional
	// +kubebuilder:default=hard
	// +kubebuilder:validation:Enum=hard;soft
	Mode string `json:"mode,omitempty"`
	// HighestTierAllowed is the highest network tier that the Pods may span.
	// +optional
	// +kubebuilder:validation:Maximum=1000000
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
	// HighestTierName is the name of that tier.
	// +optional
	HighestTierName string `json:"highestTierName,omitempty"`
}

// JobPhase is the phase of a Job.
//
// +kubebuilder:validation:Enum=Pending;Aborting;Aborted;Running;Restarting;Completing;Completed;Terminating;Terminated;Failed
type JobPhase string

// The phases of a Job. Their transitions are in internal/core/lifecycle.
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

// JobState is the phase of a Job and its reason.
type JobState struct {
	// Phase of the Job.
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// Reason is a CamelCase word for programs that explains the phase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message explains the phase to people.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is the time at which the Job entered the phase.
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

// JobCondition is a phase that the Job has been in.
type JobCondition struct {
	// Status is the phase.
	Status JobPhase `json:"status"`
	// LastTransitionTime is the time at which the Job last entered it.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// TaskState counts the Pods of a task.
type TaskState struct {
	// Phase maps phases to the number of Pods in them.
	// +optional
	Phase map[corev1.PodPhase]int32 `json:"phase,omitempty"`
}

// JobStatus is the observed state of a Job. Only the vcjob controller writes it.
type JobStatus struct {
	// State is the current phase and its reason.
	// +optional
	State JobState `json:"state,omitempty"`
	// MinAvailable is spec.minAvailable, or its default.
	// +optional
	MinAvailable int32 `json:"minAvailable,omitempty"`
	// TaskStatusCount counts the Pods of each task by phase.
	// +optional
	TaskStatusCount map[string]TaskState `json:"taskStatusCount,omitempty"`
	// Pending is the number of pending Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int32 `json:"pending,omitempty"`
	// Running is the number of running Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Running int32 `json:"running,omitempty"`
	// Succeeded is the number of succeeded Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is the number of failed Pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed,omitempty"`
	// Terminating is the number of Pods that are being deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Terminating int32 `json:"terminating,omitempty"`
	// Unknown is the number of Pods whose node does not respond.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int32 `json:"unknown,omitempty"`
	// Version increases each time all Pods are stopped. Pods of an older version are ignored.
	// +optional
	Version int32 `json:"version,omitempty"`
	// RetryCount is the number of restarts.
	// +optional
	RetryCount int32 `json:"retryCount,omitempty"`
	// RunningDuration is the time from the Job's creation to its end.
	// +optional
	RunningDuration *metav1.Duration `json:"runningDuration,omitempty"`
	// ControlledResources are the objects, other than Pods, that were created for the Job.
	// +optional
	ControlledResources map[string]string `json:"controlledResources,omitempty"`
	// Conditions are the phases that the Job has been in, the newest last.
	// +optional
	Conditions []JobCondition `json:"conditions,omitempty"`
}
