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

// The most characters of a condition's message that the API server takes, and some
// room for what a reader can stand.
const maxMessage = 4000

// reasonPattern is what the API server takes for the reason of a condition.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func (v *view) set(kind string, is metav1.ConditionStatus, reason, message string) {
	if len(reason) > 1024 || !reasonPattern.MatchString(reason) {
		reason = rayv1.ReasonUnknown // a kubelet's empty reason froze the whole status
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	meta.SetStatusCondition(&v.status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(v.now),
	})
}

func (v *view) is(kind string) bool { return meta.IsStatusConditionTrue(v.status.Conditions, kind) }

func (v *view) conditions() {
	v.headReady()
	v.suspension()
	v.provisioned()
	v.replicas()
}

// headReady says what the head Pod says of itself.
func (v *view) headReady() {
	if len(v.heads) > 1 {
		return
	}
	head := v.head()
	if head == nil {
		v.set(rayv1.HeadPodReady, metav1.ConditionFalse, rayv1.ReasonHeadPodNotFound, "Head Pod not found")
		return
	}
	c := condition(head, corev1.PodReady)
	if c == nil {
		v.set(rayv1.HeadPodReady, metav1.ConditionFalse, rayv1.ReasonUnknown, "the head Pod does not say yet whether it is ready")
		return
	}
	reason, message := c.Reason, c.Message
	switch {
	case c.Status == corev1.ConditionTrue:
		reason = rayv1.ReasonHeadPodRunningAndReady
	case reason == "ContainersNotReady":
		reason, message = containersNotReady(head, reason, message)
	}
	v.set(rayv1.HeadPodReady, metav1.ConditionStatus(c.Status), or(reason, rayv1.ReasonUnknown), message)
}

// containersNotReady says which container keeps a Pod from being ready, and why.
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

// goingAway tells whether the cluster is suspended, or becomes so.
func (v *view) goingAway() bool {
	if !v.opts.Gates.StatusConditions {
		return wantsSuspend(v.c)
	}
	return wantsSuspend(v.c) || v.is(rayv1.RayClusterSuspending) || v.is(rayv1.RayClusterSuspended)
}

// noneLeft tells whether all Pods are gone. One that is merely slow to go, or is kept by
// a finalizer, is not; one whose node is no more is.
func (v *view) noneLeft() bool {
	return len(v.Creating) == 0 && !slices.ContainsFunc(v.Pods, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || !v.NoNode[pod.Spec.NodeName]
	})
}

// suspension goes one step on. One that has begun is finished before anything else.
func (v *view) suspension() {
	for _, kind := range []string{rayv1.RayClusterSuspending, rayv1.RayClusterSuspended} {
		if meta.FindStatusCondition(v.status.Conditions, kind) == nil {
			v.set(kind, metav1.ConditionFalse, kind, "")
		}
	}
	switch {
	case v.is(rayv1.RayClusterSuspending):
		if v.noneLeft() {
			v.set(rayv1.RayClusterProvisioned, metav1.ConditionFalse, rayv1.ReasonSuspended, "RayCluster has been suspended")
			v.set(rayv1.RayClusterSuspending, metav1.ConditionFalse, rayv1.RayClusterSuspending, "")
			v.set(rayv1.RayClusterSuspended, metav1.ConditionTrue, rayv1.ReasonSuspended, "")
		}
	case v.is(rayv1.RayClusterSuspended):
		// Nil does not resume: a tool that leaves the field out did not mean to.
		if v.c.Spec.Suspend != nil && !*v.c.Spec.Suspend {
			v.set(rayv1.RayClusterSuspended, metav1.ConditionFalse, rayv1.RayClusterSuspended, "")
		}
	case wantsSuspend(v.c):
		v.set(rayv1.RayClusterSuspending, metav1.ConditionTrue, rayv1.ReasonSuspending, "")
	}
}

// provisioned is True once all Pods have run, and stays until the cluster is suspended.
func (v *view) provisioned() {
	if v.is(rayv1.RayClusterProvisioned) || v.is(rayv1.RayClusterSuspended) || v.is(rayv1.RayClusterSuspending) {
		return
	}
	if v.allRun() {
		v.set(rayv1.RayClusterProvisioned, metav1.ConditionTrue, rayv1.ReasonAllPodRunningAndReadyFirstTime,
			"All Ray Pods are ready for the first time")
		return
	}
	v.set(rayv1.RayClusterProvisioned, metav1.ConditionFalse, rayv1.ReasonPodsProvisioning, "RayCluster Pods are being provisioned for first time")
}

// allRun tells whether all Pods work that there are, the head among them. Pods that
// do not show yet are some that do not.
func (v *view) allRun() bool {
	return v.head() != nil && len(v.Creating)+len(v.steps.Create) == 0 && allReady(v.heads) && allReady(v.workers)
}

// replicas says whether a Pod could not be created or deleted.
func (v *view) replicas() {
	if reason := replicaFailure(v.failed); reason != "" {
		v.set(rayv1.ReplicaFailure, metav1.ConditionTrue, reason, v.failed.Error())
	} else if v.failed == nil {
		meta.RemoveStatusCondition(&v.status.Conditions, rayv1.ReplicaFailure)
	}
}
