package raycluster

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// lostAfter the end of its grace a Pod that is still there is taken to be lost: no
// kubelet is left that could say that it has ended.
const lostAfter = 10 * time.Second

// belongs tells whether a Pod is of the cluster: by its labels, as Services choose it,
// and not another's. A cluster of the same name that is gone was another.
func belongs(c *rayv1.RayCluster, pod *corev1.Pod) bool {
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

// slot is a place in a cluster that one Pod, or one replica of several, has.
type slot struct {
	group string
	index int
}

var headSlot = slot{group: rayv1.HeadGroup}

// slotOf is the place of a Pod. Pods that say no number all have -1.
func slotOf(pod *corev1.Pod) slot {
	if isHead(pod) {
		return headSlot
	}
	return slot{pod.Labels[rayv1.LabelGroup], number(pod, rayv1.LabelReplicaIndex)}
}

// number in a label. -1: there is none.
func number(pod *corev1.Pod, label string) int {
	n, err := strconv.Atoi(pod.Labels[label])
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// lostAt is when a Pod that is being deleted is taken to be lost.
func lostAt(pod *corev1.Pod) time.Time { return pod.DeletionTimestamp.Add(lostAfter) }

func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// ready as KubeRay has it: a Pod that says nothing of its readiness counts.
func ready(pod *corev1.Pod) bool {
	if !running(pod) {
		return false
	}
	c := condition(pod, corev1.PodReady)
	return c == nil || c.Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

// unhealthy tells whether a Pod will never work again by itself.
func unhealthy(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	return ended || running(pod) && pod.Spec.RestartPolicy == corev1.RestartPolicyNever && rayEnded(pod) != nil
}

// rayEnded is how the Ray container ended. Nil: it has not, or has no status.
func rayEnded(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if s := rayStatus(pod); s != nil {
		return s.State.Terminated
	}
	return nil
}

// rayStatus is found by the name of the container: statuses come in any order.
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
