package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaintenanceWindow limits when the running tasks of robots may be interrupted by rollouts, updates of the
// agent and preemption. A robot that some MaintenanceWindow of its namespace matches is interrupted only while
// one of them is open. Any other robot may be interrupted at any time.
//
// What a user asks for now always acts: to cancel, stop or requeue a task, to drain a robot, to revoke its
// identity. So does the self-stop deadline of a robot out of contact.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=maintenancewindows,singular=maintenancewindow,shortName=mwin,categories=k8s4r
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="TimeZone",type=string,JSONPath=`.spec.timeZone`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.spec.duration`
// +kubebuilder:printcolumn:name="Open",type=string,JSONPath=`.status.conditions[?(@.type=="Open")].status`
// +kubebuilder:printcolumn:name="Robots",type=integer,JSONPath=`.status.robots`
// +kubebuilder:printcolumn:name="Opens",type=string,JSONPath=`.status.opensAt`
// +kubebuilder:printcolumn:name="Closes",type=string,JSONPath=`.status.closesAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Open")].message`,priority=1
type MaintenanceWindow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines when the window is open, and for which robots.
	Spec MaintenanceWindowSpec `json:"spec"`
	// Status is the observed state.
	// +optional
	Status MaintenanceWindowStatus `json:"status,omitempty"`
}

// MaintenanceWindowList is a list of MaintenanceWindows.
//
// +kubebuilder:object:root=true
type MaintenanceWindowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MaintenanceWindow `json:"items"`
}

// MaintenanceWindowSpec defines when a window is open, and for which robots.
type MaintenanceWindowSpec struct {
	// RobotSelector matches the robots of the namespace that have all of these labels, in spec.labels or
	// metadata.labels of the Robot. If empty, all robots of the namespace.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	RobotSelector map[string]string `json:"robotSelector,omitempty"`
	// Schedule is when the window opens, in the format of cron: minute, hour, day of the month, month
	// and day of the week, such as "0 2 * * *". A time that does not exist on a day, because clocks go forward,
	// is left out; one that exists twice opens the window twice.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]?)?(,([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]?)?)* +([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)* +([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)* +([*?]|((0?[1-9]|1[0-2])|[A-Za-z]{3})(-((0?[1-9]|1[0-2])|[A-Za-z]{3}))?)(/[1-9][0-9]?)?(,([*?]|((0?[1-9]|1[0-2])|[A-Za-z]{3})(-((0?[1-9]|1[0-2])|[A-Za-z]{3}))?)(/[1-9][0-9]?)?)* +([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[1-9][0-9]?)?(,([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[1-9][0-9]?)?)*$')",message="must be minute, hour, day of the month, month and day of the week (0 to 6 or sun to sat), such as 0 2 * * 1-5; a time zone belongs into timeZone"
	Schedule string `json:"schedule"`
	// TimeZone of the schedule, such as Europe/Berlin. If empty, UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self.lowerAscii() != 'local'",message="must be the name of a time zone, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
	// Duration is how long the window stays open: from 1m to 168h.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?$') || size(self) == 0 || (duration(self) >= duration('1m') && duration(self) <= duration('168h'))",message="must be from 1m to 168h"
	Duration Duration `json:"duration"`
	// Exceptions are times in which the window is closed although the schedule says otherwise.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Exceptions []WindowException `json:"exceptions,omitempty"`
}

// WindowException is a time in which a window is closed.
//
// +kubebuilder:validation:XValidation:rule="self.from < self.until",message="from must be before until"
type WindowException struct {
	// From is the start of the exception.
	From metav1.Time `json:"from"`
	// Until is its end.
	Until metav1.Time `json:"until"`
	// Reason for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// MaintenanceWindowStatus is the observed state of a window. Only the manager writes it.
type MaintenanceWindowStatus struct {
	// OpensAt is when the window opens next. Not set while it is open, and if it never opens.
	// +optional
	OpensAt *metav1.Time `json:"opensAt,omitempty"`
	// ClosesAt is when the window closes. Not set while it is closed.
	// +optional
	ClosesAt *metav1.Time `json:"closesAt,omitempty"`
	// Robots is the number of robots that the window matches.
	// +optional
	Robots int32 `json:"robots,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions has Open. It is False with the reason InvalidSpec if the spec cannot be used: then the
	// window stays closed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
