package raycluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// exitNotFound is the exit code of a shell that does not find the command.
const exitNotFound = 127

// reasonNotFound is the termination reason that the node of `k8s4r up` sets if a command does not
// exist on the machine.
const reasonNotFound = "CommandNotFound"

// describePodProblem returns a short reason why a Pod is not ready, which stays the same when its
// containers restart. If no reason is known, it returns the empty string.
func describePodProblem(pod *corev1.Pod) string {
	if isRayMissing(pod) {
		return "Ray was not found: the container exited with \"command not found\". Use an image that contains ray; with k8s4r up, install ray on the machine"
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message))
	}
	if c := findCondition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return strings.TrimSpace(c.Reason + ": " + c.Message)
	}
	for _, s := range unreadyContainers(pod) {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return fmt.Sprintf("container %s: %s", s.Name, w.Reason)
		}
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %s: %s, exit code %d", s.Name, firstNonEmpty(t.Reason, "Terminated"), t.ExitCode)
		}
	}
	return ""
}

// unreadyContainers returns the statuses of the containers that keep a Pod from being ready. A
// completed init container is never ready and is left out.
func unreadyContainers(pod *corev1.Pod) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, s := range pod.Status.InitContainerStatuses {
		if t := s.State.Terminated; !s.Ready && (t == nil || t.ExitCode != 0) {
			all = append(all, s)
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if !s.Ready {
			all = append(all, s)
		}
	}
	return all
}

// isRayMissing reports whether the Ray container ended because the command does not exist.
func isRayMissing(pod *corev1.Pod) bool {
	s := rayStatus(pod)
	if s == nil {
		return false
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil && (t.ExitCode == exitNotFound || t.Reason == reasonNotFound) {
			return true
		}
	}
	return false
}
