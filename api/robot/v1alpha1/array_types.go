package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Array defines the indexes for which the task of a group runs. They are divided into ranges of
// consecutive indexes, and each range is a Task, which runs its indexes one after another on one
// robot. An index that fails, or is requeued, becomes a Task of its own.
//
// +kubebuilder:validation:XValidation:rule="(has(self.size) ? 1 : 0) + (has(self.indexes) ? 1 : 0) <= 1",message="set size or indexes, not both"
// +kubebuilder:validation:XValidation:rule="has(self.size) || has(self.indexes) || has(self.items)",message="set size, indexes or items"
// +kubebuilder:validation:XValidation:rule="!has(self.items) || !has(self.size) || self.size == size(self.items)",message="size must be the number of items; omit it"
type Array struct {
	// Size is the number of indexes, which count from 0. If empty, those of indexes, or the
	// number of items.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Size int32 `json:"size,omitempty"`
	// Indexes are up to 100,000 numbers up to 999999, in ascending order, such as
	// 0-99,200-299,500. If empty, those of size.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*)?$`
	Indexes string `json:"indexes,omitempty"`
	// Items are values for the indexes, in their order: the task finds its own in
	// K8S4R_TASK_ITEM. If empty, the variable is not set.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=16384
	// +listType=atomic
	Items []string `json:"items,omitempty"`
	// RangeSize is how many indexes a robot gets at a time. Fewer divide the work more evenly
	// between robots, more cost less. If empty, as many as give 128 ranges, and at most 1000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	RangeSize int32 `json:"rangeSize,omitempty"`
}

// The bounds of an array.
const (
	// MaxArraySize bounds the indexes.
	MaxArraySize = 100_000
	// MaxItemBytes bounds the sum of the items' lengths.
	MaxItemBytes = 128 << 10
	// MaxRangeSize bounds the indexes of a range.
	MaxRangeSize = 1000
)

// TaskArray is what a Task runs of the array of its group: a range of indexes, or one index that
// failed or was requeued.
type TaskArray struct {
	// Indexes of the range, which run one after another. Empty for a Task with index.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Indexes string `json:"indexes,omitempty"`
	// Index that the Task runs. Not set for a range.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=999999
	Index *int32 `json:"index,omitempty"`
	// Items of the indexes, in their order. If empty, the array has none.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Items []string `json:"items,omitempty"`
	// Failure is how the index ended in its range. It counts as the first attempt of a Task with
	// index. Not set if the index was requeued.
	// +optional
	Failure *IndexFailure `json:"failure,omitempty"`
	// PauseAttempt is the number of an attempt that starts no more indexes: while it is the
	// current attempt, the robot lets the running index end and then ends the attempt. Any other
	// number has no effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	PauseAttempt int32 `json:"pauseAttempt,omitempty"`
}

// TaskArrayStatus is what has become of the indexes of a range. The first end of an index counts, in
// whichever attempt. Indexes without an end run in the next attempt. Written by the server. The manager
// removes the ends of indexes that are to run again, and shows as succeeded those that did so as Tasks
// of their own and whose Tasks it deletes.
type TaskArrayStatus struct {
	// Succeeded are the indexes that ended with exit code 0.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Succeeded string `json:"succeeded,omitempty"`
	// Failed are the indexes that ended in any other way.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Failed string `json:"failed,omitempty"`
	// Failures describe the first 32 of them.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=index
	Failures []IndexFailure `json:"failures,omitempty"`
	// Durations are how long indexes took, for each of the last 10 attempts.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=attempt
	Durations []IndexDurations `json:"durations,omitempty"`
}

// IndexFailure is the end of an index that did not succeed.
type IndexFailure struct {
	// Index that failed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=999999
	Index int32 `json:"index"`
	// Robot is the name of the robot.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Robot string `json:"robot,omitempty"`
	// RobotNamespace is the namespace of a shared Robot. If empty, that of the Task.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RobotNamespace string `json:"robotNamespace,omitempty"`
	// ExitCode of the process. Not set if it is not known, because the range has more failures than
	// are described.
	// +optional
	// +kubebuilder:validation:Minimum=-2147483648
	// +kubebuilder:validation:Maximum=2147483647
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal is the number of the signal that ended the process; 0 if there was none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Signal int32 `json:"signal,omitempty"`
	// Reason is a CamelCase word for programs, such as Timeout.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// FinishedAt is the time at which the process ended, by the robot's clock.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
}

// IndexDurations is a histogram of how long the indexes of one attempt took.
type IndexDurations struct {
	// Attempt is the number of the attempt.
	Attempt int32 `json:"attempt"`
	// Counts has the number of indexes that took less than 1 ms, then 2 ms, 4 ms and so on, each
	// without those before. The last has no bound.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Counts []int32 `json:"counts"`
}

// MaxIndexFailures bounds status.array.failures.
const MaxIndexFailures = 32

// IsRange reports whether the Task runs a range of indexes of an array.
func (t *Task) IsRange() bool { return t.Spec.Array != nil && t.Spec.Array.Index == nil }

// ArrayIndex returns the index of a Task that runs a single index of an array.
func (t *Task) ArrayIndex() (index int32, ok bool) {
	if t.Spec.Array == nil || t.Spec.Array.Index == nil {
		return 0, false
	}
	return *t.Spec.Array.Index, true
}
