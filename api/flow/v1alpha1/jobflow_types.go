package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The keys of both labels and annotations of a Job that a JobFlow has made. Each
// value is namespace.name.
const (
	KeyCreatedByJobTemplate = "volcano.sh/createdByJobTemplate"
	KeyCreatedByJobFlow     = "volcano.sh/createdByJobFlow"
)

// JobFlow runs jobs in the order of what they depend on.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=k8s4r"
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:path=jobflows,singular=jobflow,shortName=jf
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.state.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobFlow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	// +optional
	Spec JobFlowSpec `json:"spec,omitempty"`
	// Status is what has come of it.
	// +optional
	Status JobFlowStatus `json:"status,omitempty"`
}

// JobFlowList is a list of JobFlows.
//
// +kubebuilder:object:root=true
type JobFlowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobFlow `json:"items"`
}

// RetainPolicy says what becomes of the Jobs of a flow that has succeeded.
//
// +kubebuilder:validation:Enum=retain;delete
type RetainPolicy string

// The retain policies.
const (
	// Retain keeps the Jobs.
	Retain RetainPolicy = "retain"
	// Delete deletes the Jobs once the flow has succeeded.
	Delete RetainPolicy = "delete"
)

// FailurePolicy says what becomes of the other steps when one has failed.
//
// +kubebuilder:validation:Enum=FailFast;Finish;Continue
type FailurePolicy string

// The failure policies.
const (
	// FailFast starts nothing more and cancels what runs.
	FailFast FailurePolicy = "FailFast"
	// Finish starts nothing more and lets what runs end.
	Finish FailurePolicy = "Finish"
	// Continue goes on with the steps that do not depend on the failed one.
	Continue FailurePolicy = "Continue"
)

// JobFlowSpec is the steps of a flow and what happens when one fails. All but flows
// and jobRetainPolicy are additions to Volcano's.
type JobFlowSpec struct {
	// Flows are the steps.
	// +optional
	Flows []Flow `json:"flows,omitempty"`
	// JobRetainPolicy says what becomes of the Jobs once the flow has succeeded.
	// Empty: they stay.
	// +optional
	JobRetainPolicy RetainPolicy `json:"jobRetainPolicy,omitempty"`

	// Params are values for $(params.NAME) in the command, args and env of the
	// steps, and for params.NAME in when.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Params map[string]string `json:"params,omitempty"`
	// FailurePolicy says what becomes of the other steps when one has failed.
	// Empty: Finish.
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// Suspend starts no more steps until it is false again. Those that run go on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Cancel stops all steps and ends the flow as Failed, for the reason Canceled.
	// There is no way back but retry.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
	// Retry runs failed steps, and what depends on them, again each time that its
	// generation grows beyond status.retry. An older one, or none, is no wish.
	// +optional
	Retry *RetryRequest `json:"retry,omitempty"`
	// TTLSecondsAfterFinished is how long the flow is kept after it has ended, with
	// its Jobs, and where the manager keeps an archive until it is in there. Not set:
	// for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// RetryRequest asks for failed steps to run again.
type RetryRequest struct {
	// Generation of the wish; one more than the last makes a new one.
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation"`
	// Flows to run again, with all that depends on them, whether they failed or
	// not. Empty: those that failed.
	// +optional
	// +listType=set
	Flows []string `json:"flows,omitempty"`
}

// Flow is one step: a Job made from a template. All but name, dependsOn and patch
// are additions to Volcano's.
type Flow struct {
	// Name of the step, and of its template where templateRef names none. Its Job
	// is called by the flow's name, a dash and this.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// DependsOn says what must have happened before the step starts. Not set:
	// nothing.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// Patch changes the template for this step.
	// +optional
	Patch *Patch `json:"patch,omitempty"`

	// TemplateRef names the template. Not set: the JobTemplate of flow.volcano.sh
	// that bears the step's name.
	// +optional
	TemplateRef *TemplateReference `json:"templateRef,omitempty"`
	// Params of this step, over those of the flow. A value may refer to
	// $(params.NAME) of the flow and to $(flows.STEP.outputs.NAME) of a step that
	// this one depends on.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Params map[string]string `json:"params,omitempty"`
	// When is a CEL expression over params and flows. If it is false as the step
	// could start, the step is skipped, and what depends on it goes on as if it had
	// completed. Empty: true. An example: double(flows.train.outputs.accuracy) > 0.9
	// A name with a dash goes in brackets: flows['my-step'].outputs.x
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	When string `json:"when,omitempty"`
	// Retry runs the step again when it has failed. Not set: it does not.
	// +optional
	Retry *StepRetry `json:"retry,omitempty"`
}

// The groups whose JobTemplates a step can name.
const (
	// TemplateGroupPods is the group of templates of pod jobs.
	TemplateGroupPods = "flow.volcano.sh"
	// TemplateGroupRobots is the group of templates of robot jobs.
	TemplateGroupRobots = "robot.k8s4r.io"
)

// TemplateReference names a JobTemplate in the flow's namespace.
type TemplateReference struct {
	// APIGroup of the template: flow.volcano.sh makes a Job of pods, robot.k8s4r.io
	// one on robots. Empty: flow.volcano.sh.
	// +optional
	// +kubebuilder:validation:Enum=flow.volcano.sh;robot.k8s4r.io
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the template. Empty: JobTemplate.
	// +optional
	// +kubebuilder:validation:Enum=JobTemplate
	Kind string `json:"kind,omitempty"`
	// Name of the template. Empty: the step's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// StepRetry bounds how often a failed step runs again by itself.
type StepRetry struct {
	// Limit is how often.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Limit int32 `json:"limit"`
	// Backoff before the first time; each later one waits twice as long, an hour at
	// most. Not set: 10s.
	// +optional
	Backoff *metav1.Duration `json:"backoff,omitempty"`
}

// DependencyCondition is what a dependency must have come to.
//
// +kubebuilder:validation:Enum=Completed;Failed;Finished;Running
type DependencyCondition string

// The conditions of a dependency.
const (
	// WhenCompleted: the target has completed, or was skipped.
	WhenCompleted DependencyCondition = "Completed"
	// WhenFailed: the target has failed for good.
	WhenFailed DependencyCondition = "Failed"
	// WhenFinished: the target has ended in any way.
	WhenFinished DependencyCondition = "Finished"
	// WhenRunning: the target runs, or has completed.
	WhenRunning DependencyCondition = "Running"
)

// DependsOn says what must hold before a step starts.
type DependsOn struct {
	// Targets are the names of other steps.
	// +optional
	Targets []string `json:"targets,omitempty"`
	// Probe must succeed too. With it a target that runs is enough.
	// +optional
	Probe *Probe `json:"probe,omitempty"`
	// Condition that each target must have come to. Empty: Completed, or Running
	// where there is a probe. An addition to Volcano's.
	// +optional
	Condition DependencyCondition `json:"condition,omitempty"`
}

// Probe asks the Pods of the targets whether they are ready for what depends on
// them. Everything in all lists must hold. The times are additions to Volcano's.
type Probe struct {
	// HTTPGetList are requests that must be answered with a status from 200 to 399.
	// +optional
	HTTPGetList []HTTPGet `json:"httpGetList,omitempty"`
	// TCPSocketList are ports that must take a connection.
	// +optional
	TCPSocketList []TCPSocket `json:"tcpSocketList,omitempty"`
	// TaskStatusList are phases that each Pod of a task must be in.
	// +optional
	TaskStatusList []TaskStatus `json:"taskStatusList,omitempty"`
	// PeriodSeconds between two rounds. Not set: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds *int32 `json:"periodSeconds,omitempty"`
	// TimeoutSeconds of each request and connection. Not set: 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// SuccessThreshold is how many rounds in a row must succeed. Not set: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is how many rounds in a row may fail before the step has
	// failed. Not set, and 0: it waits for as long as its targets run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
}

// HTTPGet is a request to each Pod of a task.
type HTTPGet struct {
	// TaskName whose Pods are asked. Empty: those of all tasks.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Path to ask for. Empty: /
	// +optional
	Path string `json:"path,omitempty"`
	// Port of the Pod.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// HTTPHeader to send along.
	// +optional
	HTTPHeader *HTTPHeader `json:"httpHeader,omitempty"`
}

// HTTPHeader of a probe's request.
type HTTPHeader struct {
	// Name of the header.
	Name string `json:"name"`
	// Value of the header.
	Value string `json:"value"`
}

// TCPSocket is a connection to each Pod of a task.
type TCPSocket struct {
	// TaskName whose Pods are connected to. Empty: those of all tasks.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Port of the Pod.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port"`
}

// TaskStatus is a phase that each Pod of a task must be in.
type TaskStatus struct {
	// TaskName whose Pods are looked at. Empty: those of all tasks.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Phase of the Pods, such as Running or Succeeded.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Phase string `json:"phase,omitempty"`
}

// Patch changes a template for one step.
type Patch struct {
	// JobSpec is merged into the template's spec: objects field by field, lists of
	// named things by their names, other lists whole. What is not set stays as the
	// template has it.
	//
	// Its schema holds the fields of both kinds of Job without their defaults, so
	// that unset is not taken for a wish (hack/crds).
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	JobSpec *runtime.RawExtension `json:"jobSpec,omitempty"`
}
