package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// kubelet marks Pods Ready, and records when the last one was created.
type kubelet struct {
	stop func()

	mu   sync.Mutex
	seen map[types.UID]bool
	at   time.Time
}

// markReady marks each Pod of a namespace Ready once, as soon as it is created.
func (s *bench) markReady(namespace string) *kubelet {
	k := &kubelet{seen: map[types.UID]bool{}}
	pods := make(chan *corev1.Pod, 100000)
	for range creators {
		go func() {
			for pod := range pods {
				pod.Status = runningStatus(pod)
				err := s.Status().Update(context.Background(), pod)
				if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
					s.Errorf("mark Pod %s Ready: %v", pod.Name, err)
				}
			}
		}()
	}
	k.stop = testkit.WatchObjects(s, s.WithWatch, namespace, func() client.ObjectList { return &corev1.PodList{} }, func(pod *corev1.Pod) {
		if k.isNew(pod) {
			pods <- pod
		}
	})
	return k
}

func (k *kubelet) isNew(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[pod.UID] {
		return false
	}
	k.seen[pod.UID], k.at = true, time.Now()
	return true
}

// lastReady returns when the last Pod was created.
func (k *kubelet) lastReady() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

func runningStatus(pod *corev1.Pod) corev1.PodStatus {
	is := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		},
	}
	for _, c := range pod.Spec.Containers {
		is.ContainerStatuses = append(is.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return is
}
