package hostnode

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// steps are what a plan asks for.
type steps struct {
	start []string
	stop  []string
	// wakeAt is when to plan again, if nothing happens before. Zero: never.
	wakeAt time.Time
	// over: no container runs, and none will.
	over bool
}

func (s *steps) wake(at time.Time) {
	if s.wakeAt.IsZero() || at.Before(s.wakeAt) {
		s.wakeAt = at
	}
}

// plan says what is to be done for a pod.
func plan(now time.Time, w *world) steps {
	var s steps
	switch {
	case w.refused != "":
		s.over = true
	case w.pod.DeletionTimestamp != nil || terminal(w.pod) || w.overdue(now):
		s.stopAll(w)
	default:
		s.run(now, w)
	}
	if at := w.deadline(); !s.over && !at.IsZero() && now.Before(at) {
		s.wake(at)
	}
	return s
}

// deadline is when the pod's activeDeadlineSeconds are over. Zero: never.
func (w *world) deadline() time.Time {
	if w.pod.Spec.ActiveDeadlineSeconds == nil || w.startedAt.IsZero() {
		return time.Time{}
	}
	return w.startedAt.Add(time.Duration(*w.pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// overdue tells whether the pod is to end, or has ended, because of its deadline.
func (w *world) overdue(now time.Time) bool {
	at := w.deadline()
	return w.expired || !at.IsZero() && !now.Before(at) && !w.finished()
}

// stopAll ends the containers, and after them the sidecars, the last first.
func (s *steps) stopAll(w *world) {
	for _, c := range w.pod.Spec.Containers {
		s.end(w, c.Name)
	}
	for _, c := range w.pod.Spec.InitContainers {
		if !isSidecar(&c) {
			s.end(w, c.Name)
		}
	}
	for _, c := range slices.Backward(w.pod.Spec.InitContainers) {
		if len(s.stop) > 0 || w.anyRuns(func(o *corev1.Container) bool { return !isSidecar(o) }) {
			return
		}
		if w.record(c.Name).running() {
			s.end(w, c.Name)
			return
		}
	}
	s.over = !w.anyRuns(func(*corev1.Container) bool { return true })
}

// end stops a container that runs and was not asked to yet.
func (s *steps) end(w *world, name string) {
	if r := w.record(name); r.running() && !r.last.stopping {
		s.stop = append(s.stop, name)
	}
}

func (w *world) anyRuns(which func(*corev1.Container) bool) bool {
	return slices.ContainsFunc(containers(w.pod), func(c corev1.Container) bool {
		return which(&c) && w.record(c.Name).running()
	})
}

// run goes on with a pod that is to run.
func (s *steps) run(now time.Time, w *world) {
	if w.finished() {
		s.stopAll(w)
		return
	}
	if !s.initialize(now, w) {
		return
	}
	for _, c := range w.pod.Spec.Containers {
		if r := w.record(c.Name); r.last == nil || r.last.ended() && restarts(w.pod, r.last) {
			s.begin(now, c.Name, r)
		}
	}
}

// initialize takes the init containers one after the other, and tells whether all
// others can start.
func (s *steps) initialize(now time.Time, w *world) bool {
	for _, c := range w.pod.Spec.InitContainers {
		r := w.record(c.Name)
		switch {
		case isSidecar(&c):
			if !r.running() {
				s.begin(now, c.Name, r)
			}
			if (r.last == nil || !r.last.up()) && !w.begun() {
				return false
			}
		case w.begun() || r.last != nil && r.last.succeeded():
		case !r.running():
			s.begin(now, c.Name, r)
			return false
		default:
			return false
		}
	}
	return true
}

// begun tells whether a container that is not for the initialization has.
func (w *world) begun() bool {
	return slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool { return w.record(c.Name).last != nil })
}

// begin starts a container as soon as it may be.
func (s *steps) begin(now time.Time, name string, r *containerRecord) {
	at := r.retryAt
	if r.last != nil {
		if again := restartAt(r.last); again.After(at) {
			at = again
		}
	}
	if at.After(now) {
		s.wake(at)
		return
	}
	s.start = append(s.start, name)
}

// restarts tells whether a run that has ended is followed by another.
func restarts(pod *corev1.Pod, r *run) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return !r.succeeded()
	default:
		return true
	}
}

// finished tells whether no container will be started any more, because all have
// done what they were there for, or because one had to and has not.
func (w *world) finished() bool {
	if w.initFailed() {
		return true
	}
	return !slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool {
		r := w.record(c.Name)
		return r.last == nil || !r.last.ended() || restarts(w.pod, r.last)
	})
}

// initFailed tells whether the initialization has failed for good.
func (w *world) initFailed() bool {
	return w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever && !w.begun() &&
		slices.ContainsFunc(w.pod.Spec.InitContainers, func(c corev1.Container) bool {
			r := w.record(c.Name)
			return !isSidecar(&c) && r.last != nil && r.last.ended() && !r.last.succeeded()
		})
}
