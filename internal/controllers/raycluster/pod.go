package raycluster

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// podLostAfter is the time after its grace period at which a Pod that still exists counts as lost: no
// kubelet is left to report its end.
const podLostAfter = 10 * time.Second

// belongsToCluster reports whether a Pod has the labels of the cluster and no other controller. The
// owner is compared by UID, because an earlier cluster may have had the same name.
func belongsToCluster(c *rayv1.RayCluster, pod *corev1.Pod) bool {
	if pod.Namespace != c.Namespace || pod.Labels[rayv1.LabelCluster] != c.Name {
		return false
	}
	if t := pod.Labels[rayv1.LabelNodeType]; t != rayv1.NodeTypeHead && t != rayv1.NodeTypeWorker {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return owner == nil || owner.UID == c.UID
}

func isHead(pod *corev1.Pod) bool { return pod.Labels[rayv1.LabelNodeType] == rayv1.NodeTypeHead }

// slot is the place of one Pod, or of one multi-host replica, in a cluster.
type slot struct {
	group string
	index int
}

var headSlot = slot{group: rayv1.HeadGroup}

// slotOf returns the slot of a Pod. The index is -1 if a worker has no index label.
func slotOf(pod *corev1.Pod) slot {
	if isHead(pod) {
		return headSlot
	}
	return slot{pod.Labels[rayv1.LabelGroup], labelNumber(pod, rayv1.LabelReplicaIndex)}
}

// labelNumber returns the number in a label, or -1 if there is none.
func labelNumber(pod *corev1.Pod, label string) int {
	n, err := strconv.Atoi(pod.Labels[label])
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// lostAt returns when a Pod that is being deleted counts as lost.
func lostAt(pod *corev1.Pod) time.Time { return pod.DeletionTimestamp.Add(podLostAfter) }

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// isReady reports whether a Pod is running and ready. As in KubeRay, a running Pod without the
// condition Ready counts as ready.
func isReady(pod *corev1.Pod) bool {
	if !isRunning(pod) {
		return false
	}
	c := findCondition(pod, corev1.PodReady)
	return c == nil || c.Status == corev1.ConditionTrue
}

func findCondition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

// isUnhealthy reports whether a Pod cannot recover by itself.
func isUnhealthy(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	return ended || isRunning(pod) && pod.Spec.RestartPolicy == corev1.RestartPolicyNever && rayEnded(pod) != nil
}

// rayEnded returns how the Ray container ended, or nil if it has not ended or has no status.
func rayEnded(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if s := rayStatus(pod); s != nil {
		return s.State.Terminated
	}
	return nil
}

// rayStatus returns the status of the Ray container by name: statuses have no fixed order.
func rayStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if len(pod.Spec.Containers) == 0 {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == pod.Spec.Containers[0].Name {
			return s
		}
	}
	return nil
}
