package hostnode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a pod and of its containers. Those of Kubernetes are the kubelet's.
const (
	reasonRefused          = "NotSupportedByHostNode"
	reasonDeadline         = "DeadlineExceeded"
	reasonCreating         = "ContainerCreating"
	reasonInitializing     = "PodInitializing"
	reasonCrashLoop        = "CrashLoopBackOff"
	reasonCompleted        = "Completed"
	reasonError            = "Error"
	reasonOOMKilled        = "OOMKilled"
	reasonStartError       = "StartError"
	reasonCommandNotFound  = "CommandNotFound"
	reasonStatusUnknown    = "ContainerStatusUnknown"
	reasonConfigError      = "CreateContainerConfigError"
	reasonContainersUnfit  = "ContainersNotReady"
	reasonContainersUninit = "ContainersNotInitialized"
	reasonPodCompleted     = "PodCompleted"
	reasonGates            = "ReadinessGatesNotReady"
)

const (
	// exitUnstarted is the exit code of a container whose command could not be
	// started, as container runtimes have it.
	exitUnstarted = 128
	// exitUnknown is that of one of which nobody knows how it ended.
	exitUnknown = 137
)

// statusOf is what is to be said of a pod. What others have said of it stays.
func statusOf(now time.Time, w *world) corev1.PodStatus {
	s := *w.pod.Status.DeepCopy()
	if terminal(w.pod) && !w.anyRuns(func(*corev1.Container) bool { return true }) && w.sameEnds(s) {
		return s
	}
	s.ObservedGeneration = w.pod.Generation
	s.StartTime = &metav1.Time{Time: w.startedAt.Truncate(time.Second)}
	s.QOSClass = w.pod.Status.QOSClass // the API server's, from the pod's creation
	if w.refused != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, reasonRefused, "Pod was rejected: "+w.refused
		return s
	}
	s.HostIP, s.HostIPs = w.hostIP, []corev1.HostIP{{IP: w.hostIP}}
	s.PodIP, s.PodIPs = w.podIP, []corev1.PodIP{{IP: w.podIP}}
	s.InitContainerStatuses = w.containerStatuses(now, w.pod.Spec.InitContainers)
	s.ContainerStatuses = w.containerStatuses(now, w.pod.Spec.Containers)
	if !terminal(w.pod) {
		s.Phase = w.phase()
		if w.expired && !w.anyRuns(func(*corev1.Container) bool { return true }) {
			s.Phase, s.Reason = corev1.PodFailed, reasonDeadline
			s.Message = "Pod was active on the node longer than the specified deadline"
		}
	}
	w.setConditions(now, &s)
	return s
}

// sameEnds tells whether the status has the end of each container that has run.
func (w *world) sameEnds(s corev1.PodStatus) bool {
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if c.State.Running != nil {
			return false
		}
	}
	return true
}

// phase is the kubelet's, from what the containers do.
func (w *world) phase() corev1.PodPhase {
	over := !w.anyRuns(func(*corev1.Container) bool { return true })
	if w.initFailed() {
		return failedIf(over, corev1.PodPending)
	}
	if !w.initialized() || !w.begun() {
		// A pod that is deleted before it has begun never will.
		return failedIf(w.pod.DeletionTimestamp != nil && over, corev1.PodPending)
	}
	if !over || !w.finished() && w.pod.DeletionTimestamp == nil {
		return corev1.PodRunning
	}
	failed := slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool {
		r := w.record(c.Name)
		return r.last == nil || !r.last.succeeded()
	})
	return failedIf(failed, corev1.PodSucceeded)
}

func failedIf(failed bool, otherwise corev1.PodPhase) corev1.PodPhase {
	if failed {
		return corev1.PodFailed
	}
	return otherwise
}

func (w *world) anyRan() bool {
	return slices.ContainsFunc(containers(w.pod), func(c corev1.Container) bool { return w.record(c.Name).last != nil })
}

// initialized tells whether the init containers have done what they are for.
func (w *world) initialized() bool {
	return len(w.uninitialized()) == 0
}

func (w *world) uninitialized() (names []string) {
	for _, c := range w.pod.Spec.InitContainers {
		last := w.record(c.Name).last
		done := last != nil && (isSidecar(&c) && (last.up() || w.begun()) || !isSidecar(&c) && (last.succeeded() || w.begun()))
		if !done {
			names = append(names, c.Name)
		}
	}
	return names
}

func (w *world) containerStatuses(now time.Time, all []corev1.Container) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range all {
		out = append(out, w.containerStatus(now, c))
	}
	return out
}

func (w *world) containerStatus(now time.Time, c corev1.Container) corev1.ContainerStatus {
	r := w.record(c.Name)
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(bool)}
	if r.last == nil {
		s.State.Waiting = w.waiting(r)
		return s
	}
	s.RestartCount = int32(r.last.attempt)
	s.ContainerID = w.containerID(c.Name, r.last.attempt)
	*s.Started = r.last.up()
	switch {
	case r.last.runs():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(r.last.state.Started.At)}
		s.Ready = r.last.up() && r.last.ready
	case !r.last.ended():
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonCreating}
	case w.willRestart(c, r.last):
		s.State.Waiting = w.backOff(now, c, r)
		s.LastTerminationState.Terminated = w.terminated(c, r.last)
	default:
		s.State.Terminated = w.terminated(c, r.last)
		s.Ready = !isSidecar(&c) && w.isInit(c.Name) && r.last.succeeded()
	}
	if r.before != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = w.terminated(c, r.before)
	}
	return s
}

func (w *world) isInit(name string) bool {
	return slices.ContainsFunc(w.pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

// willRestart tells whether an end is only the beginning of a wait.
func (w *world) willRestart(c corev1.Container, r *run) bool {
	switch {
	case w.pod.DeletionTimestamp != nil || terminal(w.pod) || w.finished():
		return false
	case isSidecar(&c):
		return true
	case w.isInit(c.Name):
		return !r.succeeded() && !w.begun() && w.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	}
	return restarts(w.pod, r)
}

// waiting is the state of a container that has never run.
func (w *world) waiting(r *containerRecord) *corev1.ContainerStateWaiting {
	switch {
	case r.trouble != nil:
		return r.trouble
	case len(w.pod.Spec.InitContainers) > 0:
		return &corev1.ContainerStateWaiting{Reason: reasonInitializing}
	}
	return &corev1.ContainerStateWaiting{Reason: reasonCreating}
}

func (w *world) backOff(now time.Time, c corev1.Container, r *containerRecord) *corev1.ContainerStateWaiting {
	if r.trouble != nil && !now.Before(restartAt(r.last)) {
		return r.trouble
	}
	return &corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: fmt.Sprintf(
		"back-off %s restarting failed container=%s pod=%s_%s(%s)", delayAfter(r.last), c.Name, w.pod.Name, w.pod.Namespace, w.pod.UID)}
}

// containerID names a run in the way of container runtimes.
func (w *world) containerID(name string, attempt int) string {
	return fmt.Sprintf("hostnode://%s/%s/%d", w.pod.UID, name, attempt)
}

func seconds(t time.Time) metav1.Time { return metav1.Time{Time: t.Truncate(time.Second)} }

// terminated tells how a run ended.
func (w *world) terminated(c corev1.Container, r *run) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ContainerID: w.containerID(c.Name, r.attempt), Message: r.message}
	if r.state.Started != nil {
		t.StartedAt = seconds(r.state.Started.At)
	}
	e := r.state.Exit
	if e == nil {
		t.ExitCode, t.Reason = exitUnknown, reasonStatusUnknown
		t.Message = "nobody knows how the container ended: what watched over it was killed"
		return t
	}
	t.ExitCode, t.FinishedAt, t.Reason = int32(e.Code), seconds(e.At), reasonError
	switch {
	case e.NoCommand:
		t.ExitCode, t.Reason = exitUnstarted, reasonCommandNotFound
		t.Message = "hostnode does not pull images; the commands are those of this host: " + e.Error
	case e.Error != "":
		t.ExitCode, t.Reason, t.Message = exitUnstarted, reasonStartError, e.Error
	case e.Code < 0: // called off before it was started
		t.ExitCode = exitUnknown
	case e.Cause == reasonOOMKilled:
		t.Reason = reasonOOMKilled
	case e.Code == 0:
		t.Reason = reasonCompleted
	}
	return t
}

// setConditions writes the conditions that are the node's.
func (w *world) setConditions(now time.Time, s *corev1.PodStatus) {
	unready := w.unready(s)
	containers := condition{corev1.ContainersReady, len(unready) == 0, reasonContainersUnfit, "containers with unready status: " + list(unready)}
	ready := containers
	ready.kind = corev1.PodReady
	if missing := missingGates(w.pod); containers.holds && len(missing) > 0 {
		ready.holds, ready.reason, ready.message = false, reasonGates, strings.Join(missing, ", ")
	}
	uninit := w.uninitialized()
	initialized := condition{corev1.PodInitialized, len(uninit) == 0, reasonContainersUninit, "containers with incomplete status: " + list(uninit)}
	switch s.Phase {
	case corev1.PodSucceeded:
		for _, c := range []*condition{&containers, &ready} {
			c.holds, c.reason, c.message = false, reasonPodCompleted, ""
		}
		initialized.holds, initialized.reason, initialized.message = true, reasonPodCompleted, ""
	case corev1.PodFailed:
		for _, c := range []*condition{&containers, &ready} {
			c.holds, c.reason, c.message = false, "PodFailed", ""
		}
	default:
	}
	for _, c := range []condition{{corev1.PodReadyToStartContainers, w.anyRan() && s.Phase != corev1.PodSucceeded && s.Phase != corev1.PodFailed, "", ""}, initialized, ready, containers} {
		c.set(now, s, w.pod.Generation)
	}
}

func list(names []string) string { return "[" + strings.Join(names, " ") + "]" }

// unready lists the containers that are not.
func (w *world) unready(s *corev1.PodStatus) (names []string) {
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

// missingGates lists the readiness gates of a pod that are not open.
func missingGates(pod *corev1.Pod) (missing []string) {
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

// condition is one of a pod's, with why it does not hold.
type condition struct {
	kind            corev1.PodConditionType
	holds           bool
	reason, message string
}

func (c condition) set(now time.Time, s *corev1.PodStatus, generation int64) {
	want := corev1.PodCondition{Type: c.kind, Status: corev1.ConditionTrue, LastTransitionTime: seconds(now), ObservedGeneration: generation}
	if !c.holds {
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
