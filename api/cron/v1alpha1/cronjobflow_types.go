package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// AnnotationScheduledAt of a JobFlow is the time at which it was due, in RFC 3339 and the time
// zone of its CronJobFlow.
const AnnotationScheduledAt = "flow.k8s4r.io/scheduled-at"

// The conditions of a CronJobFlow.
const (
	// ConditionValid is False, with a message, while the schedule, the time zone or the template
	// is invalid. No flows are started then.
	ConditionValid = "Valid"
)

// CronJobFlow creates JobFlows on a schedule.
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
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",message="metadata.name: must be 52 characters or less, because the names of its flows have 11 more characters"
type CronJobFlow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines the schedule and the flows.
	Spec CronJobFlowSpec `json:"spec"`
	// Status is the observed state.
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

// ConcurrencyPolicy defines what happens when a flow is due while an earlier one runs.
//
// +kubebuilder:validation:Enum=Allow;Forbid;Replace
type ConcurrencyPolicy string

// The concurrency policies.
const (
	// Allow runs them at the same time.
	Allow ConcurrencyPolicy = "Allow"
	// Forbid waits for the earlier one, up to startingDeadlineSeconds.
	Forbid ConcurrencyPolicy = "Forbid"
	// Replace deletes the earlier one.
	Replace ConcurrencyPolicy = "Replace"
)

// CronJobFlowSpec defines the schedule and the flows.
type CronJobFlowSpec struct {
	// Schedule in cron format: minute, hour, day of the month, month, day of the week; or
	// @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ')",message="must not contain a time zone; set timeZone instead"
	Schedule string `json:"schedule"`
	// TimeZone of the schedule, a name of the IANA time zone database such as Europe/Berlin. If
	// not set, that of the manager.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][-+_/A-Za-z0-9]*$') && self.lowerAscii() != 'local'",message="must be the name of a time zone, such as Europe/Berlin or Etc/UTC"
	// +kubebuilder:validation:XValidation:rule="timestamp('2026-01-01T00:00:00Z').getFullYear(self) > 0",message="must be a known time zone"
	TimeZone *string `json:"timeZone,omitempty"`
	// StartingDeadlineSeconds is the number of seconds that a flow may be created late. A flow
	// that would be later is skipped. If not set, there is no limit. Only the last of several
	// missed flows is created.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy defines what happens when a flow is due while an earlier one runs. Allow
	// starts it, Forbid waits for the earlier one, Replace deletes the earlier one.
	// +optional
	// +kubebuilder:default=Allow
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Suspend stops the creation of flows while it is true. Running flows continue. Times that pass
	// meanwhile count as missed.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// SuccessfulFlowsHistoryLimit is the number of succeeded flows to keep.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	SuccessfulFlowsHistoryLimit *int32 `json:"successfulFlowsHistoryLimit,omitempty"`
	// FailedFlowsHistoryLimit is the number of failed flows to keep.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	FailedFlowsHistoryLimit *int32 `json:"failedFlowsHistoryLimit,omitempty"`
	// JobFlowTemplate is the template of the flows.
	JobFlowTemplate JobFlowTemplate `json:"jobFlowTemplate"`
}

// JobFlowTemplate is the template of a JobFlow.
type JobFlowTemplate struct {
	// Labels and annotations of the flows.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec of the flows.
	// +optional
	Spec flowv1.JobFlowSpec `json:"spec,omitempty"`
}

// CronJobFlowStatus is the observed state. Only the cronjobflow controller writes it.
type CronJobFlowStatus struct {
	// Active are the flows that have not ended, oldest first.
	// +optional
	// +listType=atomic
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// ActiveCount is the number of active flows.
	// +optional
	ActiveCount int32 `json:"activeCount"`
	// LastScheduleTime is the scheduled time of the last flow that was created.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// LastSuccessfulTime is the time at which a flow last succeeded.
	// +optional
	LastSuccessfulTime *metav1.Time `json:"lastSuccessfulTime,omitempty"`
	// ObservedGeneration is the metadata.generation that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Valid is False with a message if the schedule or the template cannot be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
