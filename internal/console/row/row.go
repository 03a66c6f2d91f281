// Package row says in one flat line what an object is and how it stands: the same words in
// lists, on the stream of events and in the archive's answers. Everything in it is a pure
// function of one object.
package row

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// Kind is what objects of one sort are called in addresses. Two of our kinds are called Job,
// so their own names would not do.
type Kind string

// The kinds.
const (
	Jobs         Kind = "jobs"
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
var Kinds = []Kind{Jobs, TaskGroups, Tasks, Robots, JobFlows, CronJobFlows, VCJobs, RayClusters, Pods}

// Tone is what a state means, in one of six words for all kinds.
type Tone string

// The tones.
const (
	// Waiting: it has not begun, or waits to go on by itself.
	Waiting Tone = "waiting"
	// Running: it works.
	Running Tone = "running"
	// Good: it ended well, or is as it should be.
	Good Tone = "good"
	// Bad: it ended badly, or somebody should look at it.
	Bad Tone = "bad"
	// Paused: it waits because somebody wants so.
	Paused Tone = "paused"
	// Gone: it was called off, or is out of contact.
	Gone Tone = "gone"
)

// Tones lists every tone.
var Tones = []Tone{Waiting, Running, Good, Bad, Paused, Gone}

// Row is an object in one line. Its JSON is that of the console's API.
type Row struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// ResourceVersion of the object. Empty: it stands only in the archive any more.
	ResourceVersion string `json:"resourceVersion"`
	// State in the kind's own word. Never empty.
	State string `json:"state"`
	Tone  Tone   `json:"tone"`
	// Reason in one word and Message for people. Empty: nothing is to be said.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Created, Started and Finished of the present run. Nil: not yet, or unknown.
	Created  metav1.MicroTime  `json:"created"`
	Started  *metav1.MicroTime `json:"started,omitempty"`
	Finished *metav1.MicroTime `json:"finished,omitempty"`
	// Owner is the object that controls this one. Nil: nobody made it but a user.
	Owner *Owner `json:"owner,omitempty"`
	// Job is the job that a task, a group or a Pod belongs to, or that this is. Group is
	// the group's name within it; of a Pod the task's, or the worker group's.
	Job   string `json:"job,omitempty"`
	Group string `json:"group,omitempty"`
	// Flow, Step and Template of the job that this is, or belongs to. See Row.Inherit.
	Flow     string `json:"flow,omitempty"`
	Step     string `json:"step,omitempty"`
	Template string `json:"template,omitempty"`
	// Robot that a task is on, or that this is; Node that a Pod is on.
	Robot string `json:"robot,omitempty"`
	Node  string `json:"node,omitempty"`
	// Attempt of a task that counts. Zero: none yet.
	Attempt  int32             `json:"attempt,omitempty"`
	Progress *Progress         `json:"progress,omitempty"`
	Priority *int32            `json:"priority,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Archived: it stands only in the archive any more. No function of this package sets it.
	Archived bool `json:"archived,omitempty"`

	// Of robots only. Heartbeat is when the robot was last heard of, at least as often as
	// every third of offlineAfter.
	Heartbeat *metav1.MicroTime `json:"heartbeat,omitempty"`
	// Cordoned: it gets no new tasks.
	Cordoned bool `json:"cordoned,omitempty"`
	// Capacity by the operator's word, else by the robot's own. Used is what its tasks take of
	// it: no function of this package sets it, for it takes the tasks.
	Capacity     map[string]string `json:"capacity,omitempty"`
	Used         map[string]string `json:"used,omitempty"`
	RunningTasks int32             `json:"runningTasks,omitempty"`
}

// Owner names an object. Kind is one of Kinds, or else the Kind that Kubernetes knows.
type Owner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Progress counts the parts of an object. What was called off is in Total alone.
type Progress struct {
	Total   int32 `json:"total"`
	Waiting int32 `json:"waiting"`
	Running int32 `json:"running"`
	Done    int32 `json:"done"`
	Failed  int32 `json:"failed"`
}

// Inherit is the row with what only the job knows of the tasks, groups and Pods that belong to it.
func (r *Row) Inherit(job *Row) *Row {
	out := *r
	out.Flow, out.Step, out.Template = job.Flow, job.Step, job.Template
	return &out
}

// Parent is the kind and name of the job in whose row Flow, Step and Template of this one stand.
// False: it has none.
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

// common is what the rows of all kinds have.
func common(kind Kind, o client.Object) *Row {
	return &Row{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
		Created: metav1.NewMicroTime(o.GetCreationTimestamp().Time), Owner: owner(o), Labels: o.GetLabels(),
	}
}

// kindOf are the kinds by the API group and the name that owners are known under.
var kindOf = map[string]Kind{
	"robot.k8s4r.io/Job": Jobs, "robot.k8s4r.io/TaskGroup": TaskGroups, "robot.k8s4r.io/Task": Tasks, "robot.k8s4r.io/Robot": Robots,
	"flow.volcano.sh/JobFlow": JobFlows, "flow.k8s4r.io/CronJobFlow": CronJobFlows, "batch.volcano.sh/Job": VCJobs, "ray.io/RayCluster": RayClusters,
}

func owner(o client.Object) *Owner {
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

// ofFlow fills in which step of which flow a job is, and what it was made from.
func (r *Row) ofFlow(o client.Object) {
	r.Template = strings.TrimPrefix(o.GetAnnotations()[flowv1.KeyCreatedByJobTemplate], o.GetNamespace()+".")
	by := r.Owner
	switch {
	case by == nil:
	case by.Kind == string(JobFlows):
		// The name of a step's job is the flow's and the step's, unless that is too long.
		r.Flow, r.Step = by.Name, strings.TrimPrefix(o.GetName(), by.Name+"-")
	case by.Kind == string(CronJobFlows) && r.Template == "":
		r.Template = by.Name
	}
	if r.Template == "" {
		r.Template = generator(o)
	}
}

// generator is what the names of objects of one make have in common.
func generator(o client.Object) string {
	if o.GetGenerateName() != "" {
		return strings.TrimSuffix(o.GetGenerateName(), "-")
	}
	return o.GetName()
}

// micro is a time of whole seconds as one of microseconds. Nil and zero: unknown.
func micro(t *metav1.Time) *metav1.MicroTime {
	if t == nil || t.IsZero() {
		return nil
	}
	m := metav1.NewMicroTime(t.Time)
	return &m
}

// replicas of a Job of Pods, all in all.
func replicas(j *batchv1.Job) (n int32) {
	for i := range j.Spec.Tasks {
		n += j.Spec.Tasks[i].Replicas
	}
	return n
}
