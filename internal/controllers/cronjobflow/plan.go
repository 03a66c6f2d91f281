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
	"k8s4r.io/k8s4r/internal/core/actions"
)

// Input is everything that a plan for one CronJobFlow depends on.
type Input struct {
	Cron *cronv1.CronJobFlow
	// Flows that the CronJobFlow controls.
	Flows []flowv1.JobFlow
}

// Actions is what apply writes after one Plan, in this order.
type Actions struct {
	Delete []*flowv1.JobFlow
	Create *flowv1.JobFlow // nil if none
	// Status to write. Nil if unchanged.
	Status *cronv1.CronJobFlowStatus
	Events []Event
	// RequeueAt is the time to reconcile again. Zero: wait for the next watch event.
	RequeueAt time.Time
}

// Event is recorded on the CronJobFlow.
type Event struct{ Type, Reason, Message string }

// Plan decides the next actions for one CronJobFlow.
func Plan(now time.Time, in Input) Actions {
	p := &planner{now: now, Input: in, status: *in.Cron.Status.DeepCopy()}
	if in.Cron.DeletionTimestamp == nil {
		p.updateActive()
		p.deleteOldFlows()
		p.startDueFlow()
	}
	if !equality.Semantic.DeepEqual(p.status, in.Cron.Status) {
		p.Status = &p.status
	}
	return p.Actions
}

type planner struct {
	now time.Time
	Input
	Actions
	status cronv1.CronJobFlowStatus
}

func (p *planner) addEvent(kind, reason, format string, args ...any) {
	p.Events = append(p.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// updateActive sets the active flows and the last success in the status.
func (p *planner) updateActive() {
	slices.SortFunc(p.Flows, func(a, b flowv1.JobFlow) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	p.status.ObservedGeneration = p.Cron.Generation
	p.status.Active = nil
	for i := range p.Flows {
		f := &p.Flows[i]
		if !hasEnded(f) {
			p.status.Active = append(p.status.Active, flowReference(f))
		}
		at := f.Status.CompletionTime
		if f.Status.State.Phase == flowv1.Succeed && at != nil && !at.Before(p.status.LastSuccessfulTime) {
			p.status.LastSuccessfulTime = at
		}
	}
	p.status.ActiveCount = int32(len(p.status.Active))
}

func flowReference(f *flowv1.JobFlow) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: flowv1.GroupVersion.String(), Kind: "JobFlow", Namespace: f.Namespace, Name: f.Name, UID: f.UID,
	}
}

// hasEnded reports whether a flow and all of its Jobs have ended. A failed flow may let
// running Jobs finish, and a new flow would compete with them for the same robots.
func hasEnded(f *flowv1.JobFlow) bool {
	if f.Status.State.Phase != flowv1.Succeed && f.Status.State.Phase != flowv1.Failed {
		return false
	}
	return !slices.ContainsFunc(f.Status.JobStatusList, func(j flowv1.JobStatus) bool {
		return !flowv1.HasEnded(j.State) && j.State != batchv1.JobAborted
	})
}

// deleteOldFlows deletes ended flows beyond the history limits, oldest first.
func (p *planner) deleteOldFlows() {
	p.deleteBeyondLimit(flowv1.Succeed, ptr.Deref(p.Cron.Spec.SuccessfulFlowsHistoryLimit, 3))
	p.deleteBeyondLimit(flowv1.Failed, ptr.Deref(p.Cron.Spec.FailedFlowsHistoryLimit, 1))
}

func (p *planner) deleteBeyondLimit(phase flowv1.Phase, limit int32) {
	var of []*flowv1.JobFlow
	for i := range p.Flows {
		if f := &p.Flows[i]; f.Status.State.Phase == phase && hasEnded(f) && f.DeletionTimestamp == nil {
			of = append(of, f)
		}
	}
	if more := len(of) - int(limit); more > 0 {
		p.Delete = append(p.Delete, of[:more]...)
	}
}

// startDueFlow creates the flow that is due, if the concurrency policy allows it.
func (p *planner) startDueFlow() {
	times, ok := p.readSchedule()
	if !ok || p.Cron.Spec.Suspend {
		return // an update of the spec triggers a reconcile
	}
	p.RequeueAt = times.nextDueTime(p.lastScheduleTime(), p.now)
	due, ok := p.dueTime(times)
	if !ok {
		return
	}
	if p.hasFlowFor(due) {
		p.status.LastScheduleTime = &metav1.Time{Time: due}
		return
	}
	if p.status.ActiveCount > 0 && p.Cron.Spec.ConcurrencyPolicy == cronv1.Forbid {
		p.addEvent(corev1.EventTypeNormal, "JobFlowAlreadyActive", "not starting a flow: an earlier flow is still running and concurrencyPolicy is Forbid")
		return
	}
	if p.Cron.Spec.ConcurrencyPolicy == cronv1.Replace {
		p.deleteActiveFlows()
	}
	p.Create = p.newFlow(due)
	p.status.LastScheduleTime = &metav1.Time{Time: due}
}

// readSchedule reads schedule and template and sets the condition Valid.
func (p *planner) readSchedule() (schedule, bool) {
	times, reason, err := readSpec(&p.Cron.Spec)
	c := metav1.Condition{
		Type: cronv1.ConditionValid, Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: p.Cron.Generation,
		LastTransitionTime: metav1.Time{Time: p.now},
	}
	if err != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, err.Error()
	}
	had := meta.FindStatusCondition(p.status.Conditions, c.Type)
	if err != nil && (had == nil || had.Message != c.Message) {
		p.addEvent(corev1.EventTypeWarning, reason, "%s", err)
	}
	meta.SetStatusCondition(&p.status.Conditions, c)
	return times, err == nil
}

// lastScheduleTime returns the time after which flows are due.
func (p *planner) lastScheduleTime() time.Time {
	if last := p.status.LastScheduleTime; last != nil {
		return last.Time
	}
	return p.Cron.CreationTimestamp.Time
}

// maxDeadlineSeconds is ten years, the maximum of startingDeadlineSeconds. A larger one would overflow a
// time.Duration and count as passed.
const maxDeadlineSeconds = 315_360_000

// dueTime returns the latest time that has passed without a flow, unless its starting
// deadline has passed, too.
func (p *planner) dueTime(times schedule) (time.Time, bool) {
	after := p.lastScheduleTime()
	due := times.lastTime(after, p.now)
	if due.IsZero() {
		return due, false
	}
	deadline := p.Cron.Spec.StartingDeadlineSeconds
	if deadline != nil && due.Add(time.Duration(min(*deadline, maxDeadlineSeconds))*time.Second).Before(p.now) {
		p.addEvent(corev1.EventTypeWarning, "MissSchedule", "missed the time to start a flow: %s", due.UTC().Format(time.RFC3339))
		return due, false
	}
	if deadline == nil && times.hasMissedMany(after, p.now) {
		p.addEvent(corev1.EventTypeWarning, "TooManyMissedTimes", "missed more than %d start times since %s; only the last one is started; set spec.startingDeadlineSeconds to skip late starts, or check the clock", maxMissedTimes, after.UTC().Format(time.RFC3339))
	}
	return due, true
}

// hasFlowFor reports whether the flow of a time exists although the status does not record
// it.
func (p *planner) hasFlowFor(due time.Time) bool {
	name := flowName(p.Cron, due)
	return slices.ContainsFunc(p.Flows, func(f flowv1.JobFlow) bool { return f.Name == name })
}

// deleteActiveFlows deletes the flows that have not ended.
func (p *planner) deleteActiveFlows() {
	for i := range p.Flows {
		if f := &p.Flows[i]; !hasEnded(f) && f.DeletionTimestamp == nil {
			p.Delete = append(p.Delete, f)
		}
	}
}

// flowName returns the name of the flow that is due at that time.
func flowName(c *cronv1.CronJobFlow, due time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, due.Unix()/60)
}

// newFlow returns the JobFlow that is due at that time.
func (p *planner) newFlow(due time.Time) *flowv1.JobFlow {
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
	delete(f.Annotations, actions.AnnotationRecords) // an author of a template must not write who changed the flow
	f.Annotations[cronv1.AnnotationScheduledAt] = due.Format(time.RFC3339)
	return f
}
