package cronjobflow

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// World is what a decision depends on.
type World struct {
	Cron *cronv1.CronJobFlow
	// Flows that belong to it.
	Flows []flowv1.JobFlow
}

// Steps are what is to be done, in this order.
type Steps struct {
	Delete []*flowv1.JobFlow
	Create *flowv1.JobFlow // nil: none
	// Status to write. Nil: it is as it should be.
	Status *cronv1.CronJobFlowStatus
	Events []Event
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
}

// Event tells people of a decision.
type Event struct{ Type, Reason, Message string }

// Plan decides what is to be done about a CronJobFlow at a time.
func Plan(now time.Time, w World) Steps {
	p := &planner{now: now, World: w, status: *w.Cron.Status.DeepCopy()}
	if w.Cron.DeletionTimestamp == nil {
		p.count()
		p.trim()
		p.start()
	}
	if !equality.Semantic.DeepEqual(p.status, w.Cron.Status) {
		p.Status = &p.status
	}
	return p.Steps
}

type planner struct {
	now time.Time
	World
	Steps
	status cronv1.CronJobFlowStatus
}

func (p *planner) event(kind, reason, format string, args ...any) {
	p.Events = append(p.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// count says in the status which flows run, and when one last succeeded.
func (p *planner) count() {
	slices.SortFunc(p.Flows, func(a, b flowv1.JobFlow) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	p.status.ObservedGeneration = p.Cron.Generation
	p.status.Active = nil
	for i := range p.Flows {
		f := &p.Flows[i]
		if !ended(f) {
			p.status.Active = append(p.status.Active, reference(f))
		}
		at := f.Status.CompletionTime
		if f.Status.State.Phase == flowv1.Succeed && at != nil && !at.Before(p.status.LastSuccessfulTime) {
			p.status.LastSuccessfulTime = at
		}
	}
	p.status.ActiveCount = int32(len(p.status.Active))
}

func reference(f *flowv1.JobFlow) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: flowv1.GroupVersion.String(), Kind: "JobFlow", Namespace: f.Namespace, Name: f.Name, UID: f.UID,
	}
}

// ended tells whether nothing of a flow does anything any more. A failed one may let
// what runs end, and another beside it would meet it on the same robots.
func ended(f *flowv1.JobFlow) bool {
	if f.Status.State.Phase != flowv1.Succeed && f.Status.State.Phase != flowv1.Failed {
		return false
	}
	return !slices.ContainsFunc(f.Status.JobStatusList, func(j flowv1.JobStatus) bool {
		return !flowv1.Ended(j.State) && j.State != batchv1.JobAborted
	})
}

// trim deletes the oldest of the flows that have ended beyond what is to be kept.
func (p *planner) trim() {
	p.keep(flowv1.Succeed, ptr.Deref(p.Cron.Spec.SuccessfulFlowsHistoryLimit, 3))
	p.keep(flowv1.Failed, ptr.Deref(p.Cron.Spec.FailedFlowsHistoryLimit, 1))
}

func (p *planner) keep(phase flowv1.Phase, limit int32) {
	var of []*flowv1.JobFlow
	for i := range p.Flows {
		if f := &p.Flows[i]; f.Status.State.Phase == phase && ended(f) && f.DeletionTimestamp == nil {
			of = append(of, f)
		}
	}
	if more := len(of) - int(limit); more > 0 {
		p.Delete = append(p.Delete, of[:more]...)
	}
}

// start creates the flow that is due, if there is one and it may run.
func (p *planner) start() {
	times, ok := p.valid()
	if !ok || p.Cron.Spec.Suspend {
		return // an update of the spec wakes us
	}
	p.WakeAt = times.wake(p.after(), p.now)
	due, ok := p.due(times)
	if !ok {
		return
	}
	if p.served(due) {
		p.status.LastScheduleTime = &metav1.Time{Time: due}
		return
	}
	if p.status.ActiveCount > 0 && p.Cron.Spec.ConcurrencyPolicy == cronv1.Forbid {
		p.event(corev1.EventTypeNormal, "JobFlowAlreadyActive", "not starting a flow: an earlier one runs and the concurrency policy is Forbid")
		return
	}
	if p.Cron.Spec.ConcurrencyPolicy == cronv1.Replace {
		p.replace()
	}
	p.Create = p.flow(due)
	p.status.LastScheduleTime = &metav1.Time{Time: due}
}

// valid reads the schedule and the template, and says in the status what is wrong
// with them.
func (p *planner) valid() (schedule, bool) {
	times, reason, err := read(&p.Cron.Spec)
	c := metav1.Condition{
		Type: cronv1.ConditionValid, Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: p.Cron.Generation,
		LastTransitionTime: metav1.Time{Time: p.now},
	}
	if err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, err.Error()
	}
	had := meta.FindStatusCondition(p.status.Conditions, c.Type)
	if err != nil && (had == nil || had.Message != c.Message) {
		p.event(corev1.EventTypeWarning, reason, "%s", err)
	}
	meta.SetStatusCondition(&p.status.Conditions, c)
	return times, err == nil
}

// after is the time since which flows are due.
func (p *planner) after() time.Time {
	if last := p.status.LastScheduleTime; last != nil {
		return last.Time
	}
	return p.Cron.CreationTimestamp.Time
}

// due is the last time that has come and was not served, unless it is too late.
func (p *planner) due(times schedule) (time.Time, bool) {
	after := p.after()
	due := times.last(after, p.now)
	if due.IsZero() {
		return due, false
	}
	deadline := p.Cron.Spec.StartingDeadlineSeconds
	if deadline != nil && due.Add(time.Duration(*deadline)*time.Second).Before(p.now) {
		p.event(corev1.EventTypeWarning, "MissSchedule", "missed the time to start a flow: %s", due.UTC().Format(time.RFC3339))
		return due, false
	}
	if deadline == nil && times.missedMany(after, p.now) {
		p.event(corev1.EventTypeWarning, "TooManyMissedTimes", "more than %d times have been missed since %s, and only the last one is made up for; set spec.startingDeadlineSeconds to leave out what is too late, or check the clock", manyMissed, after.UTC().Format(time.RFC3339))
	}
	return due, true
}

// served tells whether the flow of a time exists already, though the status that says
// so was not written.
func (p *planner) served(due time.Time) bool {
	name := flowName(p.Cron, due)
	return slices.ContainsFunc(p.Flows, func(f flowv1.JobFlow) bool { return f.Name == name })
}

// replace deletes the flows that run.
func (p *planner) replace() {
	for i := range p.Flows {
		if f := &p.Flows[i]; !ended(f) && f.DeletionTimestamp == nil {
			p.Delete = append(p.Delete, f)
		}
	}
}

// flowName is the name of the flow of a time.
func flowName(c *cronv1.CronJobFlow, due time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, due.Unix()/60)
}

// flow is the JobFlow of a time.
func (p *planner) flow(due time.Time) *flowv1.JobFlow {
	template := p.Cron.Spec.JobFlowTemplate.DeepCopy()
	f := &flowv1.JobFlow{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Cron.Namespace, Name: flowName(p.Cron, due),
			Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.Cron, cronv1.GroupVersion.WithKind("CronJobFlow"))},
		},
		Spec: template.Spec,
	}
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	f.Annotations[cronv1.AnnotationScheduledAt] = due.Format(time.RFC3339)
	return f
}
