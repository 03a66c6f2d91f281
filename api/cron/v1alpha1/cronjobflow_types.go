package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// AnnotationScheduledAt of a JobFlow is the time that it was due, in RFC 3339 and the
// time zone of its CronJobFlow.
const AnnotationScheduledAt = "flow.k8s4r.io/scheduled-at"

// The conditions of a CronJobFlow.
const (
	// ConditionValid is False with a sentence while nothing can be started: the
	// schedule or the time zone cannot be read, or the template is no flow.
	ConditionValid = "Valid"
)

// CronJobFlow creates JobFlows at the times of a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cronjobflows,singular=cronjobflow,shortName=cjf,categories=k8s4r
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="TimeZone",type=string,JSONPath=`.spec.timeZone`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeCount`
// +kubebuilder:printcolumn:name="Last Schedule",type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",message="metadata.name: must be 52 characters or less, because the names of its flows end in 11 more"
type CronJobFlow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	Spec CronJobFlowSpec `json:"spec"`
	// Status is what has come of it.
	// +optional
	Status CronJobFlowStatus `json:"status,omitempty"`
}

// CronJobFlowList is a list of CronJobFlows.
//
// +kubebuilder:object:root=true
type CronJobFlowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CronJobFlow `json:"items"`
}

// ConcurrencyPolicy says what happens when a flow is due while an earlier one runs.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

// The concurrency policies.
const (
	// Allow runs them side by side.
	Allow ConcurrencyPolicy = "Allow"
	// Forbid waits for the earlier one, within startingDeadlineSeconds.
	Forbid ConcurrencyPolicy = "Forbid"
	// Replace deletes the earlier one.
	Replace ConcurrencyPolicy = "Replace"
)

// CronJobFlowSpec is when which flow is created.
type CronJobFlowSpec struct {
	// Schedule in the format of cron: minute, hour, day of the month, month, day of
	// the week; or @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ')",message="must not name a time zone; write it into timeZone"
	Schedule string `json:"schedule"`
	// TimeZone of the schedule, by its name in the database of time zones, such as
	// Europe/Berlin. Not set: that of the manager.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][-+_/A-Za-z0-9]*$') && self.lowerAscii() != 'local'",message="must be the name of a time zone, such as Europe/Berlin or Etc/UTC"
	// +kubebuilder:validation:XValidation:rule="timestamp('2026-01-01T00:00:00Z').getFullYear(self) > 0",message="must be a known time zone"
	TimeZone *string `json:"timeZone,omitempty"`
	// StartingDeadlineSeconds is how late a flow may be created. One that is later is
	// left out. Not set: however late, but only the last one that was missed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy says what happens while an earlier flow runs. Empty: Allow.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Suspend creates no more flows. Those that run go on. Times that pass meanwhile
	// count as missed.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// SuccessfulFlowsHistoryLimit is how many flows that have succeeded are kept.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	SuccessfulFlowsHistoryLimit *int32 `json:"successfulFlowsHistoryLimit,omitempty"`
	// FailedFlowsHistoryLimit is how many flows that have failed are kept.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	FailedFlowsHistoryLimit *int32 `json:"failedFlowsHistoryLimit,omitempty"`
	// JobFlowTemplate is what is created.
	JobFlowTemplate JobFlowTemplate `json:"jobFlowTemplate"`
}

// JobFlowTemplate is a JobFlow to be.
type JobFlowTemplate struct {
	// Labels and annotations of the flows.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec of the flows.
	// +optional
	Spec flowv1.JobFlowSpec `json:"spec,omitempty"`
}

// CronJobFlowStatus is written by the cronjobflow controller alone.
type CronJobFlowStatus struct {
	// Active are the flows that have not ended, the oldest first.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// ActiveCount is how many they are.
	// +optional
	ActiveCount int32 `json:"activeCount"`
	// LastScheduleTime is when the last flow that was created was due.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// LastSuccessfulTime is when a flow last succeeded.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`
	// ObservedGeneration is the metadata.generation that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
