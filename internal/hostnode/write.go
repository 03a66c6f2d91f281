package hostnode

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// writeStatus patches the changed part of a pod's status, and returns the pod as the API server
// has it then. Status fields of other writers are kept.
func (n *Node) writeStatus(ctx context.Context, pod *corev1.Pod, want corev1.PodStatus) (*corev1.Pod, error) {
	if equality.Semantic.DeepEqual(pod.Status, want) {
		return pod, nil
	}
	was, err := statusPatch(pod, pod.Status)
	if err != nil {
		return nil, err
	}
	is, err := statusPatch(pod, want)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("status of a pod: %w", err)
	}
	if patch, err = withUID(patch, pod.UID); err != nil {
		return nil, err
	}
	return n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

func statusPatch(pod *corev1.Pod, s corev1.PodStatus) ([]byte, error) {
	return json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: s})
}

// withUID makes the API server reject a patch for another pod of the same name.
func withUID(patch []byte, uid types.UID) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(patch, &all); err != nil {
		return nil, err
	}
	all["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(all)
}

// deletePod deletes a pod whose containers have ended from the API server.
func (n *Node) deletePod(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod is gone, or another one has its name
	}
	return err
}

func (n *Node) startEvents() record.EventBroadcaster {
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")})
	n.events = b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "hostnode", Host: n.cfg.Name})
	return b
}

// recordEvent records an event of a pod.
func (n *Node) recordEvent(pod *corev1.Pod, kind, reason, message string) {
	n.events.Event(pod, kind, reason, message)
}
