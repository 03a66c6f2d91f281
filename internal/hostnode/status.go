package hostnode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a pod and of its containers. Those of Kubernetes have the kubelet's meaning.
const (
	reasonNotSupported             = "NotSupportedByHostNode"
	reasonDeadline                 = "DeadlineExceeded"
	reasonCreating                 = "ContainerCreating"
	reasonInitializing             = "PodInitializing"
	reasonCrashLoop                = "CrashLoopBackOff"
	reasonCompleted                = "Completed"
	reasonError                    = "Error"
	reasonOOMKilled                = "OOMKilled"
	reasonStartError               = "StartError"
	reasonCommandNotFound          = "CommandNotFound"
	reasonStatusUnknown            = "ContainerStatusUnknown"
	reasonConfigError              = "CreateContainerConfigError"
	reasonContainersNotReady       = "ContainersNotReady"
	reasonContainersNotInitialized = "ContainersNotInitialized"
	reasonPodCompleted             = "PodCompleted"
	reasonGates                    = "ReadinessGatesNotReady"
)

const (
	// exitUnstarted is the exit code of a container whose command could not be started, as in
	// container runtimes.
	exitUnstarted = 128
	// exitUnknown is the exit code of a container whose end is unknown.
	exitUnknown = 137
)

// statusOf returns the status of a pod. Fields that others write are kept.
func statusOf(now time.Time, w *podState) corev1.PodStatus {
	s := *w.pod.Status.DeepCopy()
	if isTerminal(w.pod) && !w.hasRunning(func(*corev1.Container) bool { return true }) && w.showsNoRunning(s) {
		return s
	}
	s.ObservedGeneration = w.pod.Generation
	s.StartTime = &metav1.Time{Time: w.startedAt.Truncate(time.Second)}
	s.QOSClass = w.pod.Status.QOSClass // set by the API server when the pod was created
	if w.unsupported != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, reasonNotSupported, "Pod was rejected: "+w.unsupported
		return s
	}
	s.HostIP, s.HostIPs = w.hostIP, []corev1.HostIP{{IP: w.hostIP}}
	s.PodIP, s.PodIPs = w.podIP, []corev1.PodIP{{IP: w.podIP}}
	s.InitContainerStatuses = w.containerStatuses(now, w.pod.Spec.InitContainers)
	s.ContainerStatuses = w.containerStatuses(now, w.pod.Spec.Containers)
	if !isTerminal(w.pod) {
		s.Phase = w.podPhase()
		if w.expired && !w.hasRunning(func(*corev1.Container) bool { return true }) {
			s.Phase, s.Reason = corev1.PodFailed, reasonDeadline
			s.Message = "Pod was active on the node longer than the specified deadline"
		}
	}
	w.setConditions(now, &s)
	return s
}

// showsNoRunning reports whether the status shows no container as running.
func (w *podState) showsNoRunning(s corev1.PodStatus) bool {
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if c.State.Running != nil {
			return false
		}
	}
	return true
}

// podPhase returns the phase like the kubelet does.
func (w *podState) podPhase() corev1.PodPhase {
	over := !w.hasRunning(func(*corev1.Container) bool { return true })
	if w.initFailed() {
		return failedIf(over, corev1.PodPending)
	}
	if !w.isInitialized() || !w.hasStartedContainers() {
		// A pod that is deleted before it has started never will.
		return failedIf(w.pod.DeletionTimestamp != nil && over, corev1.PodPending)
	}
	if !over || !w.isFinished() && w.pod.DeletionTimestamp == nil {
		return corev1.PodRunning
	}
	failed := slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool {
		r := w.recordOf(c.Name)
		return r.last == nil || !r.last.hasSucceeded()
	})
	return failedIf(failed, corev1.PodSucceeded)
}

func failedIf(failed bool, otherwise corev1.PodPhase) corev1.PodPhase {
	if failed {
		return corev1.PodFailed
	}
	return otherwise
}

func (w *podState) hasRuns() bool {
	return slices.ContainsFunc(allContainers(w.pod), func(c corev1.Container) bool { return w.recordOf(c.Name).last != nil })
}

// isInitialized reports whether the init containers are done.
func (w *podState) isInitialized() bool {
	return len(w.listUninitialized()) == 0
}

func (w *podState) listUninitialized() (names []string) {
	for _, c := range w.pod.Spec.InitContainers {
		last := w.recordOf(c.Name).last
		done := last != nil && (isSidecar(&c) && (last.isUp() || w.hasStartedContainers()) || !isSidecar(&c) && (last.hasSucceeded() || w.hasStartedContainers()))
		if !done {
			names = append(names, c.Name)
		}
	}
	return names
}

func (w *podState) containerStatuses(now time.Time, all []corev1.Container) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range all {
		out = append(out, w.containerStatus(now, c))
	}
	return out
}

func (w *podState) containerStatus(now time.Time, c corev1.Container) corev1.ContainerStatus {
	r := w.recordOf(c.Name)
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(bool)}
	if r.last == nil {
		s.State.Waiting = w.waitingState(r)
		return s
	}
	s.RestartCount = int32(r.last.attempt)
	s.ContainerID = w.containerID(c.Name, r.last.attempt)
	*s.Started = r.last.isUp()
	switch {
	case r.last.isRunning():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: truncateSeconds(r.last.state.Started.At)}
		s.Ready = r.last.isUp() && r.last.ready
	case !r.last.hasEnded():
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonCreating}
	case w.willRestart(c, r.last):
		s.State.Waiting = w.backOff(now, c, r)
		s.LastTerminationState.Terminated = w.terminatedState(c, r.last)
	default:
		s.State.Terminated = w.terminatedState(c, r.last)
		s.Ready = !isSidecar(&c) && w.isInit(c.Name) && r.last.hasSucceeded()
	}
	if r.before != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = w.terminatedState(c, r.before)
	}
	return s
}

func (w *podState) isInit(name string) bool {
	return slices.ContainsFunc(w.pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

// willRestart reports whether a container that has ended is going to be restarted.
func (w *podState) willRestart(c corev1.Container, r *run) bool {
	switch {
	case w.pod.DeletionTimestamp != nil || isTerminal(w.pod) || w.isFinished():
		return false
	case isSidecar(&c):
		return true
	case w.isInit(c.Name):
		return !r.hasSucceeded() && !w.hasStartedContainers() && w.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	}
	return shouldRestart(w.pod, r)
}

// waitingState returns the state of a container that has never run.
func (w *podState) waitingState(r *containerRecord) *corev1.ContainerStateWaiting {
	switch {
	case r.startFailure != nil:
		return r.startFailure
	case len(w.pod.Spec.InitContainers) > 0:
		return &corev1.ContainerStateWaiting{Reason: reasonInitializing}
	}
	return &corev1.ContainerStateWaiting{Reason: reasonCreating}
}

func (w *podState) backOff(now time.Time, c corev1.Container, r *containerRecord) *corev1.ContainerStateWaiting {
	if r.startFailure != nil && !now.Before(restartAt(r.last)) {
		return r.startFailure
	}
	return &corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: fmt.Sprintf(
		"back-off %s restarting failed container=%s pod=%s_%s(%s)", delayAfter(r.last), c.Name, w.pod.Name, w.pod.Namespace, w.pod.UID)}
}

// containerID returns the ID of a run in the format of container runtimes.
func (w *podState) containerID(name string, attempt int) string {
	return fmt.Sprintf("hostnode://%s/%s/%d", w.pod.UID, name, attempt)
}

func truncateSeconds(t time.Time) metav1.Time { return metav1.Time{Time: t.Truncate(time.Second)} }

// terminatedState returns the state of a run that has ended.
func (w *podState) terminatedState(c corev1.Container, r *run) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ContainerID: w.containerID(c.Name, r.attempt), Message: r.message}
	if r.state.Started != nil {
		t.StartedAt = truncateSeconds(r.state.Started.At)
	}
	e := r.state.Exit
	if e == nil {
		t.ExitCode, t.Reason = exitUnknown, reasonStatusUnknown
		t.Message = "The exit code of the container is unknown: its shim was killed"
		return t
	}
	t.ExitCode, t.FinishedAt, t.Reason = int32(e.Code), truncateSeconds(e.At), reasonError
	switch {
	case e.CommandNotFound:
		t.ExitCode, t.Reason = exitUnstarted, reasonCommandNotFound
		t.Message = "hostnode does not pull images and runs the commands of this host: " + e.Error
	case e.Error != "":
		t.ExitCode, t.Reason, t.Message = exitUnstarted, reasonStartError, e.Error
	case e.Code < 0: // stopped before it was started
		t.ExitCode = exitUnknown
	case e.StopReason == reasonOOMKilled:
		t.Reason = reasonOOMKilled
	case e.Code == 0:
		t.Reason = reasonCompleted
	}
	return t
}

// setConditions sets the conditions that the node writes.
func (w *podState) setConditions(now time.Time, s *corev1.PodStatus) {
	unready := w.listUnready(s)
	containers := condition{corev1.ContainersReady, len(unready) == 0, reasonContainersNotReady, "containers with unready status: " + joinNames(unready)}
	ready := containers
	ready.kind = corev1.PodReady
	if missing := listUnmetGates(w.pod); containers.isTrue && len(missing) > 0 {
		ready.isTrue, ready.reason, ready.message = false, reasonGates, strings.Join(missing, ", ")
	}
	uninit := w.listUninitialized()
	initialized := condition{corev1.PodInitialized, len(uninit) == 0, reasonContainersNotInitialized, "containers with incomplete status: " + joinNames(uninit)}
	switch s.Phase {
	case corev1.PodSucceeded:
		for _, c := range []*condition{&containers, &ready} {
			c.isTrue, c.reason, c.message = false, reasonPodCompleted, ""
		}
		initialized.isTrue, initialized.reason, initialized.message = true, reasonPodCompleted, ""
	case corev1.PodFailed:
		for _, c := range []*condition{&containers, &ready} {
			c.isTrue, c.reason, c.message = false, "PodFailed", ""
		}
	default:
	}
	for _, c := range []condition{{corev1.PodReadyToStartContainers, w.hasRuns() && s.Phase != corev1.PodSucceeded && s.Phase != corev1.PodFailed, "", ""}, initialized, ready, containers} {
		c.setCondition(now, s, w.pod.Generation)
	}
}

func joinNames(names []string) string { return "[" + strings.Join(names, " ") + "]" }

// listUnready returns the containers that are not ready.
func (w *podState) listUnready(s *corev1.PodStatus) (names []string) {
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			names = append(names, c.Name)
		}
	}
	for i, c := range s.InitContainerStatuses {
		if isSidecar(&w.pod.Spec.InitContainers[i]) && !c.Ready {
			names = append(names, c.Name)
		}
	}
	return names
}

// listUnmetGates returns a message for each readiness gate that is not met.
func listUnmetGates(pod *corev1.Pod) (missing []string) {
	for _, g := range pod.Spec.ReadinessGates {
		open := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !open {
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist or is not True", g.ConditionType))
		}
	}
	return missing
}

// condition is a condition of a pod, with why it is not true.
type condition struct {
	kind            corev1.PodConditionType
	isTrue          bool
	reason, message string
}

func (c condition) setCondition(now time.Time, s *corev1.PodStatus, generation int64) {
	want := corev1.PodCondition{Type: c.kind, Status: corev1.ConditionTrue, LastTransitionTime: truncateSeconds(now), ObservedGeneration: generation}
	if !c.isTrue {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, c.reason, c.message
	} else if c.reason == reasonPodCompleted {
		want.Reason = c.reason
	}
	i := slices.IndexFunc(s.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, want)
		return
	}
	if s.Conditions[i].Status == want.Status {
		want.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = want
}
