// Package row describes objects of all kinds in one flat format, which lists, events and the
// archive share. All functions are pure functions of one object.
package row

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// Kind identifies a kind in URLs. The names of the API kinds are not unique: two of them are
// called Job.
type Kind string

// Kinds of objects.
const (
	Jobs         Kind = "jobs"
	Rollouts     Kind = "rollouts"
	TaskGroups   Kind = "taskgroups"
	Tasks        Kind = "tasks"
	Robots       Kind = "robots"
	JobFlows     Kind = "jobflows"
	CronJobFlows Kind = "cronjobflows"
	VCJobs       Kind = "vcjobs"
	RayClusters  Kind = "rayclusters"
	Pods         Kind = "pods"
)

// Kinds lists every kind.
var Kinds = []Kind{Jobs, Rollouts, TaskGroups, Tasks, Robots, JobFlows, CronJobFlows, VCJobs, RayClusters, Pods}

// Severity is the severity of a state, in the same six values for all kinds.
type Severity string

// Severities of states.
const (
	// Waiting means that the object has not started, or continues by itself.
	Waiting Severity = "waiting"
	// Running means that the object is active.
	Running Severity = "running"
	// Good means that the object has completed, or is in its desired state.
	Good Severity = "good"
	// Bad means that the object has failed, or needs attention.
	Bad Severity = "bad"
	// Paused means that the object waits because a user paused it.
	Paused Severity = "paused"
	// Gone means that the object was canceled, or is disconnected.
	Gone Severity = "gone"
)

// Severities lists every severity.
var Severities = []Severity{Waiting, Running, Good, Bad, Paused, Gone}

// Row describes an object in the console's API.
type Row struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// ResourceVersion of the object. If empty, the object is only in the archive.
	ResourceVersion string `json:"resourceVersion"`
	// State is the kind's own name of the state. It is never empty.
	State    string   `json:"state"`
	Severity Severity `json:"severity"`
	// Reason is a word in CamelCase and Message is for people. Both may be empty.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Created, Started and Finished of the current run. If nil, not yet or unknown.
	Created  metav1.MicroTime  `json:"created"`
	Started  *metav1.MicroTime `json:"started,omitempty"`
	Finished *metav1.MicroTime `json:"finished,omitempty"`
	// Owner is the controller of the object. It is nil for objects that a user created.
	Owner *Owner `json:"owner,omitempty"`
	// Job is the job that the object belongs to or changes, or the name of a job itself. Group is the name
	// of the group within the job; for a Pod that of the vcjob's task or of the worker group.
	Job   string `json:"job,omitempty"`
	Group string `json:"group,omitempty"`
	// Flow, Step and Template of the job that the object is or belongs to. See Row.Inherit.
	Flow     string `json:"flow,omitempty"`
	Step     string `json:"step,omitempty"`
	Template string `json:"template,omitempty"`
	// Robot is a task's current robot, or the name of a robot itself. Node is a Pod's node.
	Robot string `json:"robot,omitempty"`
	Node  string `json:"node,omitempty"`
	// Attempt is the current attempt of a task. Zero before the first.
	Attempt int32 `json:"attempt,omitempty"`
	// Restarts is how often a task was started again, by the manager or by its robot.
	Restarts int32             `json:"restarts,omitempty"`
	Progress *Progress         `json:"progress,omitempty"`
	Priority *int32            `json:"priority,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Revision of a Job is the current one, which tasks have that no Rollout has changed. That of a
	// Rollout is the one that it changes to, and FromRevision was the current one when it started.
	Revision     int64 `json:"revision,omitempty"`
	FromRevision int64 `json:"fromRevision,omitempty"`
	// Archived is set for objects that are only in the archive. This package never sets it.
	Archived bool `json:"archived,omitempty"`
	// User created the object. It is set in the history only, from the archive.
	User string `json:"user,omitempty"`

	// Heartbeat is when the server last received a heartbeat. In lists and objects it is that of the
	// robot's slice, at most a third of offlineAfter old; in events it is that of the status, which is
	// up to 20 minutes behind. This and the following fields are for robots only.
	Heartbeat *metav1.MicroTime `json:"heartbeat,omitempty"`
	// Cordoned reports whether the robot gets no new tasks.
	Cordoned bool `json:"cordoned,omitempty"`
	// Capacity is spec.capacity or what the agent reported. Used is the sum of what its tasks
	// use; this package does not set it, because it depends on the tasks.
	Capacity     map[string]string `json:"capacity,omitempty"`
	Used         map[string]string `json:"used,omitempty"`
	RunningTasks int32             `json:"runningTasks,omitempty"`
}

// Owner names an object. Kind is one of Kinds, or else the Kubernetes kind.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Progress counts the parts of an object. Canceled parts count in Total only.
type Progress struct {
	Total   int32 `json:"total"`
	Waiting int32 `json:"waiting"`
	Running int32 `json:"running"`
	Done    int32 `json:"done"`
	Failed  int32 `json:"failed"`
}

// Inherit returns a copy of the row with the fields that tasks, groups and Pods take from their
// job.
func (r *Row) Inherit(job *Row) *Row {
	out := *r
	out.Flow, out.Step, out.Template = job.Flow, job.Step, job.Template
	return &out
}

// Parent returns the kind and name of the job from which the row inherits. It returns false if
// there is none.
func (r *Row) Parent() (Kind, string, bool) {
	switch {
	case r.Job == "":
	case r.Kind == Tasks, r.Kind == TaskGroups:
		return Jobs, r.Job, true
	case r.Kind == Pods:
		return VCJobs, r.Job, true
	}
	return "", "", false
}

// newRow returns a row with the fields that all kinds have.
func newRow(kind Kind, o client.Object) *Row {
	return &Row{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
		Created: metav1.NewMicroTime(o.GetCreationTimestamp().Time), Owner: findOwner(o), Labels: o.GetLabels(),
	}
}

// kindOf maps API group and kind of owners to a Kind.
var kindOf = map[string]Kind{
	"robot.k8s4r.io/Job": Jobs, "robot.k8s4r.io/TaskGroup": TaskGroups, "robot.k8s4r.io/Task": Tasks, "robot.k8s4r.io/Robot": Robots,
	"flow.volcano.sh/JobFlow": JobFlows, "flow.k8s4r.io/CronJobFlow": CronJobFlows, "batch.volcano.sh/Job": VCJobs, "ray.io/RayCluster": RayClusters,
}

func findOwner(o client.Object) *Owner {
	by := metav1.GetControllerOfNoCopy(o)
	if by == nil {
		return nil
	}
	group, _, _ := strings.Cut(by.APIVersion, "/")
	if kind, ok := kindOf[group+"/"+by.Kind]; ok {
		return &Owner{string(kind), by.Name}
	}
	return &Owner{by.Kind, by.Name}
}

// setFlow sets the flow, step and template of a job.
func (r *Row) setFlow(o client.Object) {
	r.Template = strings.TrimPrefix(o.GetAnnotations()[flowv1.KeyCreatedByJobTemplate], o.GetNamespace()+".")
	by := r.Owner
	switch {
	case by == nil:
	case by.Kind == string(JobFlows):
		// The name of a step's job is the flow's and the step's, unless that would be too long.
		r.Flow, r.Step = by.Name, strings.TrimPrefix(o.GetName(), by.Name+"-")
	case by.Kind == string(CronJobFlows) && r.Template == "":
		r.Template = by.Name
	}
	if r.Template == "" {
		r.Template = trimGeneratedName(o)
	}
}

// trimGeneratedName returns the common prefix of generated names, or the name.
func trimGeneratedName(o client.Object) string {
	if o.GetGenerateName() != "" {
		return strings.TrimSuffix(o.GetGenerateName(), "-")
	}
	return o.GetName()
}

// toMicroTime converts a time. Nil and zero return nil.
func toMicroTime(t *metav1.Time) *metav1.MicroTime {
	if t == nil || t.IsZero() {
		return nil
	}
	m := metav1.NewMicroTime(t.Time)
	return &m
}

// countReplicas returns the total number of replicas of a vcjob.
func countReplicas(j *batchv1.Job) (n int32) {
	for i := range j.Spec.Tasks {
		n += j.Spec.Tasks[i].Replicas
	}
	return n
}
