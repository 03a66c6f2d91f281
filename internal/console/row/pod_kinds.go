package row

import (
	"cmp"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// States of kinds whose status does not contain a state.
const (
	CronScheduled = "Scheduled"
	CronActive    = "Active"
	CronSuspended = "Suspended"
	CronInvalid   = "Invalid"
	// RayPending is the state of a RayCluster that is not ready yet.
	RayPending = "pending"
	// PodTerminating is the state of a Pod that is being deleted.
	PodTerminating = "Terminating"
)

// DescribeJobFlow returns the row of a flow.
func DescribeJobFlow(f *flowv1.JobFlow) *Row {
	r := newRow(JobFlows, f)
	r.setFlow(f)
	r.Flow, r.Step = f.Name, ""
	s := &f.Status
	phase := lifecycle.FlowPhase(cmp.Or(string(s.State.Phase), string(lifecycle.FlowPending)))
	r.State, r.Severity = string(phase), flowSeverity(phase, f.Spec.Suspend)
	r.Reason, r.Message = flowWhy(s.FlowConditions)
	r.Started, r.Progress = toMicroTime(s.StartTime), countSteps(f)
	if phase.IsTerminal() {
		r.Finished = toMicroTime(s.CompletionTime)
	}
	return r
}

// flowWhy returns why a flow cannot continue, or how it ended.
func flowWhy(all []metav1.Condition) (reason, message string) {
	if valid := meta.FindStatusCondition(all, flowv1.ConditionValid); valid != nil && valid.Status == metav1.ConditionFalse {
		return valid.Reason, valid.Message
	}
	for _, kind := range []string{flowv1.ConditionFailed, flowv1.ConditionComplete, flowv1.ConditionSuspended} {
		if c := meta.FindStatusCondition(all, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// countSteps counts the steps of a flow. Skipped steps count as done.
func countSteps(f *flowv1.JobFlow) *Progress {
	s := &f.Status
	p := &Progress{
		Total: int32(len(f.Spec.Flows)), Running: int32(len(s.RunningJobs)), Done: int32(len(s.CompletedJobs)), Failed: int32(len(s.FailedJobs)),
	}
	for i := range s.Steps {
		if s.Steps[i].Skipped {
			p.Done++
		}
	}
	p.Waiting = max(0, p.Total-p.Running-p.Done-p.Failed-int32(len(s.TerminatedJobs)))
	return p
}

func flowSeverity(p lifecycle.FlowPhase, suspended bool) Severity {
	switch {
	case p == lifecycle.FlowSucceed:
		return Good
	case p == lifecycle.FlowFailed:
		return Bad
	case p == lifecycle.FlowTerminating:
		return Gone
	case suspended:
		return Paused
	case p == lifecycle.FlowRunning:
		return Running
	}
	return Waiting
}

// DescribeCronJobFlow returns the row of a schedule.
func DescribeCronJobFlow(c *cronv1.CronJobFlow) *Row {
	r := newRow(CronJobFlows, c)
	r.Template, r.Started = c.Name, toMicroTime(c.Status.LastScheduleTime)
	valid := meta.FindStatusCondition(c.Status.Conditions, flowv1.ConditionValid)
	switch {
	case valid != nil && valid.Status == metav1.ConditionFalse:
		r.State, r.Severity, r.Reason, r.Message = CronInvalid, Bad, valid.Reason, valid.Message
	case c.Spec.Suspend:
		r.State, r.Severity = CronSuspended, Paused
	case len(c.Status.Active) > 0:
		r.State, r.Severity = CronActive, Running
	default:
		r.State, r.Severity = CronScheduled, Waiting
	}
	r.Message = cmp.Or(r.Message, c.Spec.Schedule)
	return r
}

// DescribeVCJob returns the row of a vcjob.
func DescribeVCJob(j *batchv1.Job) *Row {
	r := newRow(VCJobs, j)
	r.setFlow(j)
	r.Job = j.Name
	s := &j.Status
	phase := batchv1.JobPhase(cmp.Or(string(s.State.Phase), string(batchv1.JobPending)))
	r.State, r.Severity, r.Reason, r.Message = string(phase), vcjobSeverity(phase), s.State.Reason, s.State.Message
	r.Progress = &Progress{Total: countReplicas(j), Waiting: s.Pending, Running: s.Running + s.Terminating + s.Unknown, Done: s.Succeeded, Failed: s.Failed}
	for i := range s.Conditions {
		if s.Conditions[i].Status == batchv1.JobRunning && r.Started == nil {
			r.Started = toMicroTime(s.Conditions[i].LastTransitionTime)
		}
	}
	if lifecycle.VCJobPhase(phase).IsFinished() {
		r.Finished = toMicroTime(&s.State.LastTransitionTime)
	}
	return r
}

func vcjobSeverity(p batchv1.JobPhase) Severity {
	switch p {
	case batchv1.JobRunning:
		return Running
	case batchv1.JobCompleting, batchv1.JobCompleted:
		return Good
	case batchv1.JobFailed:
		return Bad
	case batchv1.JobAborting, batchv1.JobAborted:
		return Paused
	case batchv1.JobTerminating, batchv1.JobTerminated:
		return Gone
	default:
		return Waiting
	}
}

// DescribeRayCluster returns the row of a cluster. Its progress counts the workers.
func DescribeRayCluster(c *rayv1.RayCluster) *Row {
	r := newRow(RayClusters, c)
	s := &c.Status
	r.State, r.Message = cmp.Or(string(s.State), RayPending), s.Reason
	r.Progress = &Progress{Total: s.DesiredWorkerReplicas, Running: s.ReadyWorkerReplicas, Waiting: max(0, s.DesiredWorkerReplicas-s.ReadyWorkerReplicas)}
	r.Started = toMicroTime(s.StateTransitionTimes[rayv1.StateReady])
	r.Reason = trueReason(s.Conditions, rayv1.ReplicaFailure, rayv1.RayClusterSuspending, rayv1.RayClusterSuspended)
	switch r.State {
	case string(rayv1.StateReady):
		r.Severity = Good
	case string(rayv1.StateSuspended):
		r.Severity = Paused
	case RayPending:
		r.Severity = Waiting
	default: // unhealthy, failed
		r.Severity = Bad
	}
	return r
}

// DescribePod returns the row of a Pod of a vcjob or RayCluster.
func DescribePod(p *corev1.Pod) *Row {
	r := newRow(Pods, p)
	r.Job, r.Node = p.Labels[batchv1.KeyJobName], p.Spec.NodeName
	r.Group = cmp.Or(p.Labels[batchv1.KeyTaskSpec], p.Labels[rayv1.LabelGroup])
	r.State, r.Severity = string(p.Status.Phase), podSeverity(p.Status.Phase)
	r.Reason, r.Message = podWhy(p)
	r.Started = toMicroTime(p.Status.StartTime)
	r.Finished = podEnd(p)
	if p.DeletionTimestamp != nil && r.Finished == nil {
		r.State, r.Severity = PodTerminating, Gone
	}
	return r
}

func podSeverity(p corev1.PodPhase) Severity {
	switch p {
	case corev1.PodRunning:
		return Running
	case corev1.PodSucceeded:
		return Good
	case corev1.PodFailed:
		return Bad
	case corev1.PodUnknown:
		return Gone
	default:
		return Waiting
	}
}

// podWhy returns what prevents a Pod from running, or how it ended.
func podWhy(p *corev1.Pod) (reason, message string) {
	if p.Status.Reason != "" || p.Status.Message != "" {
		return p.Status.Reason, p.Status.Message
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return c.State.Waiting.Reason, c.State.Waiting.Message
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			end := c.State.Terminated
			return cmp.Or(end.Reason, "Error"), cmp.Or(end.Message, fmt.Sprintf("container %s exited with code %d", c.Name, end.ExitCode))
		}
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// podEnd returns when the last container of a Pod ended. It is nil while the Pod runs.
func podEnd(p *corev1.Pod) *metav1.MicroTime {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return nil
	}
	var last metav1.Time
	for i := range p.Status.ContainerStatuses {
		if end := p.Status.ContainerStatuses[i].State.Terminated; end != nil && end.FinishedAt.After(last.Time) {
			last = end.FinishedAt
		}
	}
	return toMicroTime(&last)
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
