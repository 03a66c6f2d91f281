package hostnode

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// actions are the result of a plan.
type actions struct {
	start []string
	stop  []string
	// wakeAt is when to plan again unless something happens before. If zero, never.
	wakeAt time.Time
	// over reports that no container is running and none will be started.
	over bool
}

func (s *actions) requeueAt(at time.Time) {
	if s.wakeAt.IsZero() || at.Before(s.wakeAt) {
		s.wakeAt = at
	}
}

// planPod returns what to do for a pod.
func planPod(now time.Time, w *podState) actions {
	var s actions
	switch {
	case w.unsupported != "":
		s.over = true
	case w.pod.DeletionTimestamp != nil || isTerminal(w.pod) || w.isOverdue(now):
		s.stopAll(w)
	default:
		s.planRunning(now, w)
	}
	if at := w.activeDeadline(); !s.over && !at.IsZero() && now.Before(at) {
		s.requeueAt(at)
	}
	return s
}

// activeDeadline returns the time at which activeDeadlineSeconds are over. If zero, there is no
// deadline.
func (w *podState) activeDeadline() time.Time {
	if w.pod.Spec.ActiveDeadlineSeconds == nil || w.startedAt.IsZero() {
		return time.Time{}
	}
	return w.startedAt.Add(time.Duration(*w.pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// isOverdue reports whether the pod must end, or has ended, because of its deadline.
func (w *podState) isOverdue(now time.Time) bool {
	at := w.activeDeadline()
	return w.expired || !at.IsZero() && !now.Before(at) && !w.isFinished()
}

// stopAll stops the containers, and after them the sidecars in reverse order.
func (s *actions) stopAll(w *podState) {
	for _, c := range w.pod.Spec.Containers {
		s.stopContainer(w, c.Name)
	}
	for _, c := range w.pod.Spec.InitContainers {
		if !isSidecar(&c) {
			s.stopContainer(w, c.Name)
		}
	}
	for _, c := range slices.Backward(w.pod.Spec.InitContainers) {
		if len(s.stop) > 0 || w.hasRunning(func(o *corev1.Container) bool { return !isSidecar(o) }) {
			return
		}
		if w.recordOf(c.Name).isRunning() {
			s.stopContainer(w, c.Name)
			return
		}
	}
	s.over = !w.hasRunning(func(*corev1.Container) bool { return true })
}

// stopContainer stops a container that is running and is not being stopped yet.
func (s *actions) stopContainer(w *podState, name string) {
	if r := w.recordOf(name); r.isRunning() && !r.last.stopping {
		s.stop = append(s.stop, name)
	}
}

func (w *podState) hasRunning(which func(*corev1.Container) bool) bool {
	return slices.ContainsFunc(allContainers(w.pod), func(c corev1.Container) bool {
		return which(&c) && w.recordOf(c.Name).isRunning()
	})
}

// planRunning plans a pod that is to run.
func (s *actions) planRunning(now time.Time, w *podState) {
	if w.isFinished() {
		s.stopAll(w)
		return
	}
	if !s.planInit(now, w) {
		return
	}
	for _, c := range w.pod.Spec.Containers {
		if r := w.recordOf(c.Name); r.last == nil || r.last.hasEnded() && shouldRestart(w.pod, r.last) {
			s.startContainer(now, c.Name, r)
		}
	}
}

// planInit starts the init containers in order. It reports whether the other containers can start.
func (s *actions) planInit(now time.Time, w *podState) bool {
	for _, c := range w.pod.Spec.InitContainers {
		r := w.recordOf(c.Name)
		switch {
		case isSidecar(&c):
			if !r.isRunning() {
				s.startContainer(now, c.Name, r)
			}
			if (r.last == nil || !r.last.isUp()) && !w.hasStartedContainers() {
				return false
			}
		case w.hasStartedContainers() || r.last != nil && r.last.hasSucceeded():
		case !r.isRunning():
			s.startContainer(now, c.Name, r)
			return false
		default:
			return false
		}
	}
	return true
}

// hasStartedContainers reports whether a container other than an init container has been started.
func (w *podState) hasStartedContainers() bool {
	return slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool { return w.recordOf(c.Name).last != nil })
}

// startContainer starts a container if its back-off is over.
func (s *actions) startContainer(now time.Time, name string, r *containerRecord) {
	at := r.retryAt
	if r.last != nil {
		if again := restartAt(r.last); again.After(at) {
			at = again
		}
	}
	if at.After(now) {
		s.requeueAt(at)
		return
	}
	s.start = append(s.start, name)
}

// shouldRestart reports whether a container is restarted after a run that has ended.
func shouldRestart(pod *corev1.Pod, r *run) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return !r.hasSucceeded()
	default:
		return true
	}
}

// isFinished reports whether no further container will be started: all have ended, or an init
// container has failed for good.
func (w *podState) isFinished() bool {
	if w.initFailed() {
		return true
	}
	return !slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool {
		r := w.recordOf(c.Name)
		return r.last == nil || !r.last.hasEnded() || shouldRestart(w.pod, r.last)
	})
}

// initFailed reports whether an init container has failed and is not restarted.
func (w *podState) initFailed() bool {
	return w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever && !w.hasStartedContainers() &&
		slices.ContainsFunc(w.pod.Spec.InitContainers, func(c corev1.Container) bool {
			r := w.recordOf(c.Name)
			return !isSidecar(&c) && r.last != nil && r.last.hasEnded() && !r.last.hasSucceeded()
		})
}
