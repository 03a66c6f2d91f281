package vcjob

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// tally counts the Pods of a Job. Those on their way out are terminating, and
// nothing else.
type tally struct {
	pending, running, succeeded, failed, terminating, unknown int32
	// tasks counts, by task and phase, those that are not terminating.
	tasks map[string]map[corev1.PodPhase]int32
}

// live is how many have not ended.
func (t tally) live() int32 { return t.pending + t.running + t.terminating + t.unknown }

// tally counts the Pods as the Job stands in the status that the plan writes.
func (p *plan) tally() tally {
	t := tally{tasks: map[string]map[corev1.PodPhase]int32{}}
	for _, pod := range p.Pods {
		if p.going(pod) {
			t.terminating++
			continue
		}
		phase := or(pod.Status.Phase, corev1.PodPending)
		task, _ := taskOf(pod)
		if t.tasks[task] == nil {
			t.tasks[task] = map[corev1.PodPhase]int32{}
		}
		t.tasks[task][phase]++
		*t.field(phase)++
	}
	return t
}

func (t *tally) field(phase corev1.PodPhase) *int32 {
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

// count puts the counts into the status.
func (p *plan) count() {
	t, s := p.tally(), p.status
	if p.before().Finished() {
		p.keepEnded(&t)
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
	s.ControlledResources = p.controlled()
	if p.phase() == lifecycle.VCJobPending && p.out.Change == nil {
		p.sayWhatWaits()
	}
}

// keepEnded keeps the counts of a finished Job when somebody clears its Pods
// away: they are what it has come to.
func (p *plan) keepEnded(t *tally) {
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

// sayWhatWaits tells people why a Job is pending that cannot have its Pods yet.
func (p *plan) sayWhatWaits() {
	_, held := p.missing()
	s := &p.status.State
	switch {
	case len(p.NoClaims) > 0:
		s.Reason, s.Message = "NoVolumeClaim", "waits for the volume claims "+strings.Join(p.NoClaims, ", ")+" of spec.volumes, which do not exist"
	case len(held) > 0:
		s.Reason, s.Message = "DependsOn", strings.Join(held, "; ")
	case s.Reason == "NoVolumeClaim" || s.Reason == "DependsOn":
		s.Reason, s.Message = "Created", "its Pods are being created"
	}
}

// become puts the Job into a phase.
func (p *plan) become(c *Change) {
	at := metav1.NewTime(p.now.Truncate(time.Second))
	phase := batchv1.JobPhase(c.To)
	s := p.status
	s.State = batchv1.JobState{Phase: phase, Reason: c.Reason, Message: c.Why, LastTransitionTime: at}
	s.Conditions = append(slices.DeleteFunc(s.Conditions, func(old batchv1.JobCondition) bool { return old.Status == phase }),
		batchv1.JobCondition{Status: phase, LastTransitionTime: &at})
	s.RunningDuration = nil
	if c.To.Rests() {
		s.RunningDuration = &metav1.Duration{Duration: max(at.Sub(p.Job.CreationTimestamp.Time), 0)}
	}
	p.out.Change = c
}

// recordOfPlugin is the name of a plugin in status.controlledResources.
func recordOfPlugin(name string) string { return "plugin-" + name }

// controlled are the objects beside Pods that the Job has made. The claims stay
// as long as the Job.
func (p *plan) controlled() map[string]string {
	all := map[string]string{}
	for _, claim := range claims(p.Job) {
		all["volume-pvc-"+claim.Name] = claim.Name
	}
	if !p.phase().Rests() {
		for plugin := range p.spec.Plugins {
			all[recordOfPlugin(plugin)] = plugin
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
