package archive

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/masking"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// NewObject returns the record of an object of the API server. The Job of a task or a task group
// names the template; if it is nil, its name is used instead. The error is about a kind that is
// not archived, or an invalid resourceVersion.
func NewObject(o object, job *v1alpha1.Job) (Object, error) {
	var out Object
	switch o := o.(type) {
	case *v1alpha1.Job:
		out = ofJob(o)
	case *v1alpha1.TaskGroup:
		out = ofGroup(o, job)
	case *v1alpha1.Task:
		out = ofTask(o, job)
	case *v1alpha1.Robot:
		out = ofRobot(o)
	case *flowv1.JobFlow:
		out = ofFlow(o)
	case *batchv1.Job:
		out = ofVCJob(o)
	case *rayv1.RayCluster:
		out = Object{Kind: RayCluster, Phase: string(o.Status.State), Reason: o.Status.Reason, Template: baseName(o)}
	default:
		return Object{}, fmt.Errorf("archive: %T is of no kind that is archived", o)
	}
	return complete(out, o)
}

// object is what the API server stores.
type object interface {
	metav1.Object
	runtime.Object
}

// complete adds what all kinds have.
func complete(out Object, m object) (Object, error) {
	out.Namespace, out.Name, out.UID, out.Created = m.GetNamespace(), m.GetName(), string(m.GetUID()), m.GetCreationTimestamp().UTC()
	version, err := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return Object{}, fmt.Errorf("archive: %s %s/%s: resourceVersion %q is not a number, so records cannot be ordered", out.Kind, out.Namespace, out.Name, m.GetResourceVersion())
	}
	out.Version = version
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		out.Owner = string(owner.UID)
	}
	labels := maps.Clone(m.GetLabels())
	for k, v := range out.Labels {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[k] = v
	}
	out.Labels = labels
	if out.Outcome != "" && !out.Finished.IsZero() {
		out.Changed = out.Finished
	}
	if out.Manifest, err = marshalManifest(out.Kind, m); err != nil {
		return Object{}, fmt.Errorf("archive: %s %s/%s: %w", out.Kind, out.Namespace, out.Name, err)
	}
	return out, nil
}

// types are the group, version and kind of the objects. A cache leaves them out.
var types = map[Kind]schema.GroupVersionKind{
	Job:        v1alpha1.GroupVersion.WithKind("Job"),
	TaskGroup:  v1alpha1.GroupVersion.WithKind("TaskGroup"),
	Task:       v1alpha1.GroupVersion.WithKind("Task"),
	Robot:      v1alpha1.GroupVersion.WithKind("Robot"),
	JobFlow:    flowv1.GroupVersion.WithKind("JobFlow"),
	VCJob:      batchv1.GroupVersion.WithKind("Job"),
	RayCluster: rayv1.GroupVersion.WithKind("RayCluster"),
}

// marshalManifest returns the whole object without managed fields and private keys.
func marshalManifest(kind Kind, o object) (json.RawMessage, error) {
	whole, ok := o.DeepCopyObject().(object)
	if !ok {
		return nil, fmt.Errorf("a copy of %T is none", o)
	}
	whole.SetManagedFields(nil)
	whole.GetObjectKind().SetGroupVersionKind(types[kind])
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	return masking.MaskManifest(text), nil
}

func ofJob(j *v1alpha1.Job) Object {
	out := Object{
		Kind: Job, Template: templateName(j), Step: stepOfFlow(j), Phase: j.Status.State, Reason: j.Status.StatusDescription,
		Started: microTime(j.Status.StartedAt), Outcome: ofState(j.Status.State),
	}
	if out.Outcome != "" {
		out.Finished = microTime(j.Status.CompletedAt)
	}
	return out
}

func ofGroup(g *v1alpha1.TaskGroup, job *v1alpha1.Job) Object {
	out := Object{
		Kind: TaskGroup, Template: templateOf(job, g.Spec.JobName), Step: g.Spec.GroupName, Phase: g.Status.State, Reason: g.Status.StatusDescription,
		Started: microTime(g.Status.StartedAt), Outcome: ofState(g.Status.State),
	}
	if out.Outcome != "" {
		out.Finished = microTime(g.Status.CompletedAt)
	}
	return out
}

// ofState is the outcome of a job, a group or a task that is in a state.
func ofState(s string) Outcome {
	switch lifecycle.JobState(s) {
	case lifecycle.JobCompleted:
		return Succeeded
	case lifecycle.JobFailed:
		return Failed
	case lifecycle.JobCanceled:
		return Canceled
	default:
		return ""
	}
}

func ofTask(t *v1alpha1.Task, job *v1alpha1.Job) Object {
	s := &t.Status
	state := lifecycle.TaskState(s.State)
	out := Object{
		Kind: Task, Template: templateOf(job, cmp.Or(t.Spec.JobName, baseName(t))), Step: taskStep(t), Robot: t.CurrentRobot(),
		Phase: string(state.OrPending()), Reason: s.Reason, Started: microTime(s.StartedAt), Outcome: ofState(s.State),
	}
	if state == lifecycle.TaskRunning {
		out.Changed = microTime(s.StartedAt)
	}
	if out.Outcome != "" {
		out.Finished = microTime(s.FinishedAt)
		if out.Finished.IsZero() { // it never ran, and nothing says when it was called off
			out.Finished = lastChange(s.Conditions, t.CreationTimestamp.Time)
		}
	}
	for i := range s.Attempts {
		out.Attempts = append(out.Attempts, ofAttempt(t, &s.Attempts[i]))
	}
	return out
}

// taskStep returns the group and the name of a task in its job. The name of the group's object is
// that of its job and its own, unless that is too long.
func taskStep(t *v1alpha1.Task) string {
	if t.Spec.TaskGroupName == "" {
		return t.Spec.Name
	}
	return strings.TrimPrefix(t.Spec.TaskGroupName, t.Spec.JobName+"-") + "/" + t.Spec.Name
}

func ofAttempt(t *v1alpha1.Task, a *v1alpha1.TaskAttempt) Attempt {
	out := Attempt{
		Job: t.Spec.JobName, Number: int64(a.Attempt), Robot: a.Robot, State: a.State, Reason: a.Reason, Signal: int64(a.Signal), RunCount: a.RunCount,
		Started: microTime(a.StartedAt), Finished: microTime(a.FinishedAt),
		Log: fmt.Sprintf("/v1/namespaces/%s/tasks/%s/logs?attempt=%d", url.PathEscape(t.Namespace), url.PathEscape(t.Name), a.Attempt),
	}
	switch lifecycle.TaskState(a.State) {
	case lifecycle.TaskExited, lifecycle.TaskSoftFailed, lifecycle.TaskFailed:
		out.Failed = !wire.IsWithoutFault(a.Reason)
	default:
	}
	if a.ExitCode != nil {
		code := int64(*a.ExitCode)
		out.ExitCode = &code
	}
	return out
}

func ofRobot(r *v1alpha1.Robot) Object {
	return Object{
		Kind: Robot, Robot: r.Name, Phase: r.Status.Phase, Reason: r.Status.Message, Template: baseName(r),
		Labels: r.Spec.Labels,
	}
}

func ofFlow(f *flowv1.JobFlow) Object {
	out := Object{Kind: JobFlow, Template: templateName(f), Phase: string(f.Status.State.Phase), Started: plainTime(f.Status.StartTime)}
	switch f.Status.State.Phase {
	case flowv1.Succeed:
		out.Outcome = Succeeded
	case flowv1.Failed:
		out.Outcome = Failed
	default:
	}
	if out.Outcome != "" {
		out.Finished = plainTime(f.Status.CompletionTime)
	}
	for _, c := range f.Status.FlowConditions {
		if c.Type == flowv1.ConditionFailed && c.Status == metav1.ConditionTrue {
			out.Reason = c.Reason
		}
	}
	return out
}

func ofVCJob(j *batchv1.Job) Object {
	state := j.Status.State
	out := Object{Kind: VCJob, Template: templateName(j), Step: stepOfFlow(j), Phase: string(state.Phase), Reason: state.Reason, Changed: state.LastTransitionTime.UTC()}
	for _, c := range j.Status.Conditions {
		if c.Status == batchv1.JobRunning && out.Started.IsZero() {
			out.Started = plainTime(c.LastTransitionTime)
		}
	}
	switch state.Phase {
	case batchv1.JobCompleted:
		out.Outcome = Succeeded
	case batchv1.JobFailed:
		out.Outcome = Failed
	case batchv1.JobTerminated:
		out.Outcome = Canceled
	default:
		return out
	}
	out.Finished = state.LastTransitionTime.UTC()
	return out
}

// templateOf returns the template of a job that may be gone.
func templateOf(job *v1alpha1.Job, jobName string) string {
	if job == nil {
		return jobName
	}
	return templateName(job)
}

// templateName returns what objects of one origin have in common: the JobTemplate, the
// CronJobFlow, the prefix of a generated name, or the name.
func templateName(o metav1.Object) string {
	if from := o.GetAnnotations()[flowv1.KeyCreatedByJobTemplate]; from != "" {
		return strings.TrimPrefix(from, o.GetNamespace()+".")
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "CronJobFlow" {
		return owner.Name
	}
	return baseName(o)
}

func baseName(o metav1.Object) string {
	if o.GetGenerateName() != "" {
		return strings.TrimSuffix(o.GetGenerateName(), "-")
	}
	return o.GetName()
}

// stepOfFlow returns the step of a flow to which a job belongs. The job's name is that of the
// flow and the step, unless that is too long.
func stepOfFlow(o metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "JobFlow" {
		return strings.TrimPrefix(o.GetName(), owner.Name+"-")
	}
	return ""
}

// lastChange returns when the last of the conditions changed, or then if that is later.
func lastChange(all []metav1.Condition, then time.Time) time.Time {
	for _, c := range all {
		if c.LastTransitionTime.After(then) {
			then = c.LastTransitionTime.Time
		}
	}
	return then.UTC()
}

func microTime(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func plainTime(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
