package hostnode

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s4r.io/k8s4r/internal/shim"
)

// run is what is known of one run of a container.
type run struct {
	// attempt counts the runs of the container, from 0.
	attempt int
	// delay is how long it was waited for after the one before.
	delay time.Duration
	// state is what its shim has said.
	state shim.State
	// gone: the shim says no more.
	gone bool
	// message is what the container left to be told, once it has ended.
	message string

	// stopping: the container was asked to end.
	stopping bool
	// begun: its postStart hook has done its work, or there is none.
	begun bool
	// started and ready are what its probes say.
	started, ready bool
}

// ended tells whether the run is over.
func (r *run) ended() bool { return r.gone }

// succeeded tells whether it ended as it should.
func (r *run) succeeded() bool { return r.gone && r.state.Exit != nil && r.state.Exit.Code == 0 }

// runs tells whether the container's process is there.
func (r *run) runs() bool { return !r.gone && r.state.Started != nil }

// up tells whether what waits for the container can go on.
func (r *run) up() bool { return r.runs() && r.begun && r.started }

// finishedAt is zero until it has ended, and when nobody knows.
func (r *run) finishedAt() time.Time {
	if r.gone && r.state.Exit != nil {
		return r.state.Exit.At
	}
	return time.Time{}
}

// containerRecord is what is known of a container.
type containerRecord struct {
	// last is its latest run, and before the one before that. Nil: none.
	last, before *run
	// trouble is why it cannot be started now. Nil: nothing is in the way, as far
	// as anybody knows.
	trouble *corev1.ContainerStateWaiting
	// retryAt is when it is tried again, after trouble.
	retryAt time.Time
}

// running tells whether there is something to stop.
func (r *containerRecord) running() bool { return r.last != nil && !r.last.ended() }

// world is all that a plan and a status are made of.
type world struct {
	pod     *corev1.Pod
	records map[string]*containerRecord
	// refused is why the pod can never run here. Empty: it can.
	refused string
	// expired: its activeDeadlineSeconds have ended it.
	expired bool
	podIP   string
	hostIP  string
	// startedAt is when the node took the pod up.
	startedAt time.Time
}

// record is never nil.
func (w *world) record(name string) *containerRecord {
	if r := w.records[name]; r != nil {
		return r
	}
	return &containerRecord{}
}

// containers are all of a pod, in the order of their start.
func containers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// isSidecar tells of an init container that goes on beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// terminal tells whether the API server has the end of a pod.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
