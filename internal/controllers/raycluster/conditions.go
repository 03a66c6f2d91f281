package raycluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// maxMessage is the longest condition message, in bytes. It is far below the limit of the API server to
// keep messages readable.
const maxMessage = 4000

// reasonPattern matches what the API server accepts as the reason of a condition.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func (v *view) setCondition(kind string, is metav1.ConditionStatus, reason, message string) {
	if len(reason) > 1024 || !reasonPattern.MatchString(reason) {
		reason = rayv1.ReasonUnknown // the API server would reject the whole status, for example for a kubelet's empty reason
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	meta.SetStatusCondition(&v.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(v.now),
	})
}

func (v *view) hasCondition(kind string) bool {
	return meta.IsStatusConditionTrue(v.status.Conditions, kind)
}

func (v *view) setConditions() {
	v.setHeadPodReady()
	v.advanceSuspension()
	v.setProvisioned()
	v.setReplicaFailure()
}

// setHeadPodReady sets HeadPodReady from the Ready condition of the head Pod.
func (v *view) setHeadPodReady() {
	if len(v.heads) > 1 {
		return
	}
	head := v.headPod()
	if head == nil {
		v.setCondition(rayv1.HeadPodReady, metav1.ConditionFalse, rayv1.ReasonHeadPodNotFound, "Head Pod not found")
		return
	}
	c := findCondition(head, corev1.PodReady)
	if c == nil {
		v.setCondition(rayv1.HeadPodReady, metav1.ConditionFalse, rayv1.ReasonUnknown, "the head Pod has no condition Ready yet")
		return
	}
	reason, message := c.Reason, c.Message
	switch {
	case c.Status == corev1.ConditionTrue:
		reason = rayv1.ReasonHeadPodRunningAndReady
	case reason == "ContainersNotReady":
		reason, message = containersNotReady(head, reason, message)
	}
	v.setCondition(rayv1.HeadPodReady, metav1.ConditionStatus(c.Status), firstNonEmpty(reason, rayv1.ReasonUnknown), message)
}

// containersNotReady returns the reason and message of the first container that keeps the Pod from
// being ready. If no container gives a reason, it returns its arguments.
func containersNotReady(pod *corev1.Pod, reason, message string) (newReason, newMessage string) {
	for _, s := range unreadyContainers(pod) {
		var why, text string
		switch {
		case s.State.Waiting != nil:
			why, text = s.State.Waiting.Reason, s.State.Waiting.Message
		case s.State.Terminated != nil:
			why, text = s.State.Terminated.Reason, s.State.Terminated.Message
		}
		if why != "" {
			return why, fmt.Sprintf("%s; %s: %s", message, s.Name, text)
		}
	}
	return reason, message
}

// isSuspending reports whether the cluster is suspended or being suspended.
func (v *view) isSuspending() bool {
	if !v.opts.Gates.StatusConditions {
		return shouldSuspend(v.c)
	}
	return shouldSuspend(v.c) || v.hasCondition(rayv1.RayClusterSuspending) || v.hasCondition(rayv1.RayClusterSuspended)
}

// hasNoPods reports whether all Pods are gone. A Pod that is slow to terminate or has a finalizer is
// not gone; a deleted Pod whose node no longer exists is.
func (v *view) hasNoPods() bool {
	return len(v.Creating) == 0 && !slices.ContainsFunc(v.Pods, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || !v.MissingNodes[pod.Spec.NodeName]
	})
}

// advanceSuspension moves the suspension to its next state. A suspension that has begun is completed
// even if the spec changes back.
func (v *view) advanceSuspension() {
	for _, kind := range []string{rayv1.RayClusterSuspending, rayv1.RayClusterSuspended} {
		if meta.FindStatusCondition(v.status.Conditions, kind) == nil {
			v.setCondition(kind, metav1.ConditionFalse, kind, "")
		}
	}
	switch {
	case v.hasCondition(rayv1.RayClusterSuspending):
		if v.hasNoPods() {
			v.setCondition(rayv1.RayClusterSuspending, metav1.ConditionFalse, rayv1.RayClusterSuspending, "")
			v.setCondition(rayv1.RayClusterSuspended, metav1.ConditionTrue, rayv1.ReasonSuspended, "")
		}
	case v.hasCondition(rayv1.RayClusterSuspended):
		// If suspend is nil, the cluster is not resumed: a tool may have dropped the field.
		if v.c.Spec.Suspend != nil && !*v.c.Spec.Suspend {
			v.setCondition(rayv1.RayClusterSuspended, metav1.ConditionFalse, rayv1.RayClusterSuspended, "")
		}
	case shouldSuspend(v.c):
		v.setCondition(rayv1.RayClusterSuspending, metav1.ConditionTrue, rayv1.ReasonSuspending, "")
	}
}

// setProvisioned sets Provisioned to True once all Pods have been ready. It stays True until the
// cluster is suspended. As in KubeRay, a suspended cluster differs from one that starts by the
// message only: users' rules match the reason.
func (v *view) setProvisioned() {
	switch {
	case v.hasCondition(rayv1.RayClusterSuspended):
		v.setCondition(rayv1.RayClusterProvisioned, metav1.ConditionFalse, rayv1.ReasonPodsProvisioning, "RayCluster has been suspended")
	case v.hasCondition(rayv1.RayClusterProvisioned) || v.hasCondition(rayv1.RayClusterSuspending):
	case v.areAllPodsReady():
		v.setCondition(rayv1.RayClusterProvisioned, metav1.ConditionTrue, rayv1.ReasonAllPodRunningAndReadyFirstTime, "All Ray Pods are ready for the first time")
	default:
		v.setCondition(rayv1.RayClusterProvisioned, metav1.ConditionFalse, rayv1.ReasonPodsProvisioning, "RayCluster Pods are being provisioned for first time")
	}
}

// areAllPodsReady reports whether the head and all existing workers are ready and no Pod creation is pending.
func (v *view) areAllPodsReady() bool {
	return v.headPod() != nil && len(v.Creating)+len(v.steps.Create) == 0 && allReady(v.heads) && allReady(v.workers)
}

// setReplicaFailure sets ReplicaFailure if a Pod could not be created or deleted, or if there are
// too many, and removes it when everything succeeded.
func (v *view) setReplicaFailure() {
	if v.steps.Excess != "" {
		v.setCondition(rayv1.ReplicaFailure, metav1.ConditionTrue, rayv1.ReasonPodLimitExceeded, v.steps.Excess)
	} else if reason := replicaFailureReason(v.failed); reason != "" {
		v.setCondition(rayv1.ReplicaFailure, metav1.ConditionTrue, reason, v.failed.Error())
	} else if v.failed == nil {
		meta.RemoveStatusCondition(&v.status.Conditions, rayv1.ReplicaFailure)
	}
}
