package vcjob

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/events"
)

// podCounts counts the Pods of a Job. Pods that are terminating are counted as nothing
// else.
type podCounts struct {
	pending, running, succeeded, failed, terminating, unknown int32
	// tasks counts Pods that are not terminating, by task and phase.
	tasks map[string]map[corev1.PodPhase]int32
}

// liveCount returns how many Pods have not ended.
func (t podCounts) liveCount() int32 { return t.pending + t.running + t.terminating + t.unknown }

// countPods counts the Pods according to the planned status.
func (p *plan) countPods() podCounts {
	t := podCounts{tasks: map[string]map[corev1.PodPhase]int32{}}
	for _, pod := range p.Pods {
		if p.isTerminating(pod) {
			t.terminating++
			continue
		}
		phase := cmp.Or(pod.Status.Phase, corev1.PodPending)
		task, _ := taskOf(pod)
		if t.tasks[task] == nil {
			t.tasks[task] = map[corev1.PodPhase]int32{}
		}
		t.tasks[task][phase]++
		*t.phaseCounter(phase)++
	}
	return t
}

func (t *podCounts) phaseCounter(phase corev1.PodPhase) *int32 {
	switch phase {
	case corev1.PodPending:
		return &t.pending
	case corev1.PodRunning:
		return &t.running
	case corev1.PodSucceeded:
		return &t.succeeded
	case corev1.PodFailed:
		return &t.failed
	default:
		return &t.unknown
	}
}

// setCounts sets the counts of the status.
func (p *plan) setCounts() {
	t, s := p.countPods(), p.status
	if p.previousPhase().IsFinished() {
		p.keepEndedCounts(&t)
	}
	s.MinAvailable = p.spec.MinAvailable
	s.Pending, s.Running, s.Succeeded, s.Failed = t.pending, t.running, t.succeeded, t.failed
	s.Terminating, s.Unknown = t.terminating, t.unknown
	s.TaskStatusCount = nil
	for task, phases := range t.tasks {
		if s.TaskStatusCount == nil {
			s.TaskStatusCount = map[string]batchv1.TaskState{}
		}
		s.TaskStatusCount[task] = batchv1.TaskState{Phase: phases}
	}
	s.ControlledResources = p.controlledResources()
	if p.phase() == lifecycle.VCJobPending && p.out.Change == nil {
		p.explainPending()
	}
}

// keepEndedCounts keeps the counts of a finished Job when its Pods are deleted: they are
// its result.
func (p *plan) keepEndedCounts(t *podCounts) {
	was := &p.Job.Status
	t.succeeded, t.failed = max(t.succeeded, was.Succeeded), max(t.failed, was.Failed)
	for task, state := range was.TaskStatusCount {
		for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			if n := max(t.tasks[task][phase], state.Phase[phase]); n > 0 {
				if t.tasks[task] == nil {
					t.tasks[task] = map[corev1.PodPhase]int32{}
				}
				t.tasks[task][phase] = n
			}
		}
	}
}

// explainPending sets reason and message of a Job whose Pods cannot be created yet.
func (p *plan) explainPending() {
	held := p.describeHeldTasks()
	s := &p.status.State
	switch {
	case len(p.MissingClaims) > 0:
		s.Reason, s.Message = "NoVolumeClaim", "waiting for volume claims of spec.volumes that do not exist: "+strings.Join(p.MissingClaims, ", ")
	case len(held) > 0:
		s.Reason, s.Message = "DependsOn", strings.Join(held, "; ")
	case s.Reason == "NoVolumeClaim" || s.Reason == "DependsOn":
		s.Reason, s.Message = "Created", "its Pods are being created"
	}
	s.Message = events.ClipText(s.Message, maxMessageBytes)
}

// maxMessageBytes bounds the message of the status. It may list names that the user has chosen, and
// the API server rejects a status that is too large every time.
const maxMessageBytes = 4096

// enterPhase sets the new phase.
func (p *plan) enterPhase(c *PhaseChange) {
	at := metav1.NewTime(p.now.Truncate(time.Second))
	phase := batchv1.JobPhase(c.To)
	s := p.status
	c.Message = events.ClipText(c.Message, maxMessageBytes)
	s.State = batchv1.JobState{Phase: phase, Reason: c.Reason, Message: c.Message, LastTransitionTime: at}
	s.Conditions = append(slices.DeleteFunc(s.Conditions, func(old batchv1.JobCondition) bool { return old.Status == phase }),
		batchv1.JobCondition{Status: phase, LastTransitionTime: &at})
	s.RunningDuration = nil
	if c.To.IsSettled() {
		s.RunningDuration = &metav1.Duration{Duration: max(at.Sub(p.Job.CreationTimestamp.Time), 0)}
	}
	p.out.Change = c
}

// pluginRecordName returns the key of a plugin in status.controlledResources.
func pluginRecordName(name string) string { return "plugin-" + name }

// controlledResources returns the objects other than Pods that the Job has created. Claims
// stay as long as the Job. For a spec with a problem nothing more is created.
func (p *plan) controlledResources() map[string]string {
	if p.problem != "" && !p.phase().IsSettled() {
		return p.status.ControlledResources
	}
	all := map[string]string{}
	for _, claim := range newClaims(p.Job) {
		all["volume-pvc-"+claim.Name] = claim.Name
	}
	if !p.phase().IsSettled() {
		for plugin := range p.spec.Plugins {
			all[pluginRecordName(plugin)] = plugin
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
