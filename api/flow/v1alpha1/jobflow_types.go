package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	batchv1alpha1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// The keys of labels and annotations of Jobs that a JobFlow created. Each value is
// NAMESPACE.NAME.
const (
	KeyCreatedByJobTemplate = "volcano.sh/createdByJobTemplate"
	KeyCreatedByJobFlow     = "volcano.sh/createdByJobFlow"
)

// JobFlow runs Jobs in the order of their dependencies.
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

	// Spec defines the steps of the flow.
	// +optional
	Spec JobFlowSpec `json:"spec,omitempty"`
	// Status is the observed state of the flow.
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

// MaxSteps is the highest number of steps of a flow. The status of more does not fit into an object.
const MaxSteps = 1000

// RetainPolicy defines whether the Jobs of a flow that has succeeded are kept.
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

// FailurePolicy defines what happens to the other steps when one has failed.
//
// +kubebuilder:validation:Enum=FailFast;Finish;Continue
type FailurePolicy string

// The failure policies.
const (
	// FailFast starts no more steps and cancels the running ones.
	FailFast FailurePolicy = "FailFast"
	// Finish starts no more steps and lets the running ones end.
	Finish FailurePolicy = "Finish"
	// Continue continues with the steps that do not depend on the failed one.
	Continue FailurePolicy = "Continue"
)

// JobFlowSpec defines the steps of a flow and what happens when one fails. All fields except
// flows and jobRetainPolicy are additions to Volcano's.
type JobFlowSpec struct {
	// Flows are the steps.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Flows []Flow `json:"flows,omitempty"`
	// JobRetainPolicy defines whether the Jobs are kept when the flow has succeeded. If empty,
	// retain.
	// +optional
	JobRetainPolicy RetainPolicy `json:"jobRetainPolicy,omitempty"`

	// Params are values for $(params.NAME) in the command, args and env of the
	// steps, and for params.NAME in when.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Params map[string]string `json:"params,omitempty"`
	// FailurePolicy defines what happens to the other steps when one has failed. If empty,
	// Finish.
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// Suspend stops the start of steps while it is true. Running steps continue.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Cancel stops all steps and ends the flow as Failed, with the reason Canceled. Only a retry
	// continues it.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
	// Retry runs failed steps, and the steps that depend on them, again each time its generation
	// exceeds status.retry. A generation that is not greater has no effect.
	// +optional
	Retry *RetryRequest `json:"retry,omitempty"`
	// TTLSecondsAfterFinished is the number of seconds after which an ended flow is deleted with
	// its Jobs. If the manager has an archive, the flow is kept until it is recorded there. If
	// not set, the flow is kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// RetryRequest runs failed steps again.
type RetryRequest struct {
	// Generation of the request. Increase it to retry once more.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Generation int64 `json:"generation"`
	// Flows are the steps to run again, with all steps that depend on them, whether they have
	// failed or not. If empty, the failed ones.
	// +optional
	// +listType=set
	Flows []string `json:"flows,omitempty"`
}

// Flow is one step: a Job created from a template. All fields except name, dependsOn and patch
// are additions to Volcano's.
type Flow struct {
	// Name of the step, and of its template unless templateRef names another. The name of its Job
	// is FLOW-STEP.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// DependsOn defines when the step may start. If not set, at once.
	// +optional
	DependsOn *DependsOn `json:"dependsOn,omitempty"`
	// Patch changes the template for this step.
	// +optional
	Patch *Patch `json:"patch,omitempty"`

	// TemplateRef names the template. If not set, the JobTemplate of flow.volcano.sh with the
	// name of the step.
	// +optional
	TemplateRef *TemplateReference `json:"templateRef,omitempty"`
	// Params of this step, over those of the flow. A value may refer to
	// $(params.NAME) of the flow and to $(flows.STEP.outputs.NAME) of a step that
	// this one depends on.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Params map[string]string `json:"params,omitempty"`
	// When is a CEL expression over params and flows. If it is false when the step could start,
	// the step is skipped, and the steps that depend on it continue as if it had completed. If
	// empty, true. An example: double(flows.train.outputs.accuracy) > 0.9. A name with a dash is
	// written in brackets: flows['my-step'].outputs.x
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	When string `json:"when,omitempty"`
	// Retry runs the step again when it has failed. If not set, it does not run again.
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
	// APIGroup of the template: flow.volcano.sh creates a pod job, robot.k8s4r.io a Job on
	// robots. If empty, flow.volcano.sh.
	// +optional
	// +kubebuilder:validation:Enum=flow.volcano.sh;robot.k8s4r.io
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the template. If empty, JobTemplate.
	// +optional
	// +kubebuilder:validation:Enum=JobTemplate
	Kind string `json:"kind,omitempty"`
	// Name of the template. If empty, the name of the step.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// StepRetry bounds how often a failed step runs again automatically.
type StepRetry struct {
	// Limit is the number of retries.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Limit int32 `json:"limit"`
	// Backoff is the delay before the first retry. It doubles with each further one, up to an
	// hour. If not set, 10s.
	// +optional
	Backoff *batchv1alpha1.Duration `json:"backoff,omitempty"`
}

// DependencyCondition is the state that a dependency must have reached.
//
// +kubebuilder:validation:Enum=Completed;Failed;Finished;Running
type DependencyCondition string

// The conditions of a dependency.
const (
	// WhenCompleted: the target has completed, or was skipped.
	WhenCompleted DependencyCondition = "Completed"
	// WhenFailed: the target has failed and is not retried.
	WhenFailed DependencyCondition = "Failed"
	// WhenFinished: the target has ended in any way.
	WhenFinished DependencyCondition = "Finished"
	// WhenRunning: the target is running, or has completed.
	WhenRunning DependencyCondition = "Running"
)

// DependsOn defines when a step may start.
type DependsOn struct {
	// Targets are the names of the steps that this step depends on.
	// +optional
	Targets []string `json:"targets,omitempty"`
	// Probe that must succeed as well. If set, targets must be running; they do not have to
	// complete. A probe without an entry in its lists is the same as none.
	// +optional
	Probe *Probe `json:"probe,omitempty"`
	// Condition that each target must have reached. If empty, Completed, or Running if there is a
	// probe. An addition to Volcano's.
	// +optional
	Condition DependencyCondition `json:"condition,omitempty"`
}

// EffectiveProbe returns the probe, or nil if there is none or if none of its lists has an entry.
func (d *DependsOn) EffectiveProbe() *Probe {
	if d == nil || d.Probe == nil || len(d.Probe.HTTPGetList)+len(d.Probe.TCPSocketList)+len(d.Probe.TaskStatusList) == 0 {
		return nil
	}
	return d.Probe
}

// Probe checks the Pods of the targets. All checks in all lists must succeed. The times and
// thresholds are additions to Volcano's.
type Probe struct {
	// HTTPGetList are HTTP requests that must return a status from 200 to 399.
	// +optional
	HTTPGetList []HTTPGet `json:"httpGetList,omitempty"`
	// TCPSocketList are ports that must accept a connection.
	// +optional
	TCPSocketList []TCPSocket `json:"tcpSocketList,omitempty"`
	// TaskStatusList are phases that all Pods of a task must be in.
	// +optional
	TaskStatusList []TaskStatus `json:"taskStatusList,omitempty"`
	// PeriodSeconds is the time between two rounds. If not set, 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds *int32 `json:"periodSeconds,omitempty"`
	// TimeoutSeconds of each request and connection. If not set, 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// SuccessThreshold is the number of consecutive rounds that must succeed. If not set, 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is the number of consecutive rounds that fail the step. If not set or 0,
	// the step waits as long as its targets run.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
}

// HTTPGet is a request to each Pod of a task.
type HTTPGet struct {
	// TaskName selects the Pods of a task. If empty, those of all tasks.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TaskName string `json:"taskName,omitempty"`
	// Path of the request. If empty, /.
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
	// TaskName selects the Pods of a task. If empty, those of all tasks.
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
	// TaskName selects the Pods of a task. If empty, those of all tasks.
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
	// JobSpec is merged into the template's spec: objects field by field, lists of named items by
	// their names, other lists as a whole. Fields that are not set keep the value of the
	// template.
	//
	// Its schema has the fields of both kinds of Job without their defaults, so that a field that
	// is not set is not mistaken for a default (hack/crds).
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	JobSpec *runtime.RawExtension `json:"jobSpec,omitempty"`
}
