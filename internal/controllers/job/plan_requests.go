package job

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// wished is what the operator's wishes make of the job now. Empty: nothing.
//
// The desired state is a level: it holds until it is changed. A requeue is an
// edge: it is taken up once, or refused once, for one that was kept until the
// job allows it would put tasks back when nobody thinks of it any more.
//
// While tasks are still being stopped it waits for them; that is bounded.
func (p *plan) wished(s *v1alpha1.JobStatus, counts lifecycle.Counts) progress.Change {
	state := lifecycle.JobState(s.State)
	if wish, fresh := p.requeueWish(s); fresh {
		from := s.State
		if state == lifecycle.JobRequeueing || state.Stops() && counts.Active() > 0 {
			// What is still being stopped would end as canceled within the new
			// life of the job, and nobody would put it back.
			return progress.Change{}
		}
		s.Requeue = &v1alpha1.RequeueStatus{Requeue: *p.Job.Spec.Requeue.DeepCopy(), From: from}
		if to, ok := lifecycle.StepJob(state, wish); ok {
			return progress.Change{To: to, Why: "requeue " + scope(&s.Requeue.Requeue) + " was asked for"}
		}
		p.out.Refused = fmt.Sprintf("spec.requeue: a job that is %s cannot be requeued; possible now: %s", state, possible(state))
	}
	wish, why := lifecycle.JobResume, "it was resumed"
	switch p.Job.Spec.DesiredState {
	case v1alpha1.DesiredCanceled:
		wish, why = lifecycle.JobCancel, "it was canceled by its operator"
	case v1alpha1.DesiredPaused:
		wish, why = lifecycle.JobPause, "it was paused by its operator"
	}
	if to, ok := lifecycle.StepJob(state, wish); ok {
		return progress.Change{To: to, Why: why}
	}
	return progress.Change{}
}

// requeueWish tells whether spec.requeue holds a wish that was not taken up
// yet.
func (p *plan) requeueWish(s *v1alpha1.JobStatus) (wish lifecycle.JobSignal, fresh bool) {
	r := p.Job.Spec.Requeue
	switch {
	case r == nil || r.Generation == 0 || s.Requeue != nil && r.Generation <= s.Requeue.Generation:
		return "", false
	case len(r.Tasks) > 0 || r.Scope == v1alpha1.RequeueFailed:
		return lifecycle.JobRequeueSome, true
	}
	return lifecycle.JobRequeue, true
}

func scope(r *v1alpha1.Requeue) string {
	switch {
	case len(r.Tasks) == 1:
		return "of task " + r.Tasks[0]
	case len(r.Tasks) > 1:
		return fmt.Sprintf("of %d tasks", len(r.Tasks))
	case r.Scope == v1alpha1.RequeueFailed:
		return "of the failed tasks"
	}
	return "of all tasks"
}

func possible(s lifecycle.JobState) string {
	wishes := lifecycle.JobWishes(s)
	if len(wishes) == 0 {
		return "nothing, wait for the next state"
	}
	words := make([]string, len(wishes))
	for i, w := range wishes {
		words[i] = string(w)
	}
	return strings.Join(words, ", ")
}

// putBack tells whether every group has put its tasks back.
func (p *plan) putBack(s *v1alpha1.JobStatus) bool {
	for _, g := range p.Groups {
		if s.Requeue != nil && g.Status.ObservedRequeue < s.Requeue.Generation {
			return false
		}
	}
	return true
}

// reopen forgets the end of a job that begins anew.
func reopen(s *v1alpha1.JobStatus) { s.StartedAt, s.CompletedAt = nil, nil }

// overdue tells whether the job has had its time, and else wakes it when it
// will have.
func (p *plan) overdue(s *v1alpha1.JobStatus) bool {
	d := p.Job.Spec.ActiveDeadline
	if d == nil || s.StartedAt == nil || lifecycle.JobState(s.State).Terminal() {
		return false
	}
	end := s.StartedAt.Add(d.Value())
	if p.now.Before(end) {
		p.wake(end)
		return false
	}
	return true
}

// awaitFlow is when to look again whether a flow has recorded the end of its step. It
// does so within moments; a job that were gone before would be one whose end nobody
// knows.
const awaitFlow = 2 * time.Second

// expire deletes a job that has been kept for as long as its owner wanted.
func (p *plan) expire() {
	ttl, at := p.Job.Spec.TTLSecondsAfterFinished, p.Job.Status.CompletedAt
	if ttl == nil || at == nil {
		return
	}
	end := at.Add(time.Duration(*ttl) * time.Second)
	if p.now.Before(end) {
		p.wake(end)
		return
	}
	if p.Awaited {
		p.wake(p.now.Add(awaitFlow))
		return
	}
	if p.Archives && !p.Job.Status.Archived() {
		return // the condition wakes us
	}
	p.out.Delete = true
	p.out.Why = append(p.out.Why, "delete the job: its ttlSecondsAfterFinished are over")
}

// blocklist is what the groups say of the robots that failed them.
func (p *plan) blocklist() []v1alpha1.BlockedRobot {
	var all []v1alpha1.BlockedRobot
	for name, g := range p.Groups {
		for _, robot := range g.Status.BlockedRobots {
			all = append(all, v1alpha1.BlockedRobot{TaskGroup: name, Robot: robot})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.BlockedRobot) int {
		return strings.Compare(a.TaskGroup+"\x00"+a.Robot, b.TaskGroup+"\x00"+b.Robot)
	})
	return all[:min(len(all), maxBlocklist)]
}

// maxBlocklist bounds the list, as the kind does.
const maxBlocklist = 1024
