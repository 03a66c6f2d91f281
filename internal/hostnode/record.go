package hostnode

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/robot/shim"
)

// run is the state of one run of a container.
type run struct {
	// attempt numbers the runs of the container, from 0.
	attempt int
	// delay is the back-off before this run.
	delay time.Duration
	// state is the last state of its shim.
	state shim.State
	// shimExited reports whether the shim has exited.
	shimExited bool
	// message is the termination message, once the container has exited.
	message string

	// stopping reports whether the container is being stopped.
	stopping bool
	// postStartDone reports whether the postStart hook has finished. It is true if there is none.
	postStartDone bool
	// started and ready are the results of the startup and readiness probes.
	started, ready bool
}

// hasEnded reports whether the run has ended.
func (r *run) hasEnded() bool { return r.shimExited }

// hasSucceeded reports whether it ended with exit code 0.
func (r *run) hasSucceeded() bool {
	return r.shimExited && r.state.Exit != nil && r.state.Exit.Code == 0
}

// isRunning reports whether the container's process is running.
func (r *run) isRunning() bool { return !r.shimExited && r.state.Started != nil }

// isUp reports whether containers that wait for this one can start.
func (r *run) isUp() bool { return r.isRunning() && r.postStartDone && r.started }

// finishedAt returns when the run ended. It is zero if the run has not ended, or if the end is
// unknown.
func (r *run) finishedAt() time.Time {
	if r.shimExited && r.state.Exit != nil {
		return r.state.Exit.At
	}
	return time.Time{}
}

// containerRecord is the state of a container.
type containerRecord struct {
	// last is its latest run, and before the previous one. If nil, there is none.
	last, before *run
	// startFailure is why the last start failed. If nil, it did not fail.
	startFailure *corev1.ContainerStateWaiting
	// retryAt is when the start is retried after startFailure.
	retryAt time.Time
}

// isRunning reports whether there is a run to stop.
func (r *containerRecord) isRunning() bool { return r.last != nil && !r.last.hasEnded() }

// podState is the input of planPod and statusOf.
type podState struct {
	pod     *corev1.Pod
	records map[string]*containerRecord
	// unsupported is why the node cannot run the pod. If empty, it can.
	unsupported string
	// expired reports whether the pod has exceeded its activeDeadlineSeconds.
	expired bool
	podIP   string
	hostIP  string
	// startedAt is when the node accepted the pod.
	startedAt time.Time
}

// recordOf returns the record of a container. It is never nil.
func (w *podState) recordOf(name string) *containerRecord {
	if r := w.records[name]; r != nil {
		return r
	}
	return &containerRecord{}
}

// allContainers returns the init containers and the containers of a pod, in the order of their
// start.
func allContainers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// isSidecar reports whether an init container keeps running besides the containers.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// isTerminal reports whether the API server has a final phase of the pod.
func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
