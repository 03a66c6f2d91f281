package raycluster

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// failure is a write that did not succeed, and what it says in the status.
type failure struct {
	reason string // of the condition ReplicaFailure. Empty: it has none
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Status is what a cluster has come to: it follows from the Pods that there are, from
// what was decided about them, and from whether that could be done.
func Status(now time.Time, o Options, w World, s Steps, failed error) *rayv1.RayClusterStatus {
	v := &view{World: w, now: now, opts: o, c: w.Cluster, steps: s, failed: failed, status: w.Cluster.Status.DeepCopy()}
	v.sort()
	v.count()
	v.findHead()
	if o.Gates.StatusConditions {
		v.conditions()
	}
	v.state()
	v.status.ObservedGeneration = v.c.Generation
	return v.status
}

// view is a status in the making.
type view struct {
	World
	now    time.Time
	opts   Options
	c      *rayv1.RayCluster
	steps  Steps
	failed error
	status *rayv1.RayClusterStatus
	// heads and workers that are there.
	heads, workers []*corev1.Pod
}

func (v *view) sort() {
	p := &plan{World: v.World, now: v.now}
	for _, pod := range v.Pods {
		switch {
		case !p.counts(pod):
		case isHead(pod):
			v.heads = append(v.heads, pod)
		default:
			v.workers = append(v.workers, pod)
		}
	}
}

// head is the one that there is. Nil: there is none, or no telling which.
func (v *view) head() *corev1.Pod {
	if len(v.heads) != 1 {
		return nil
	}
	return v.heads[0]
}

// count the Pods, wanted and present, and what they ask for.
func (v *view) count() {
	s := v.status
	s.DesiredWorkerReplicas, s.MinWorkerReplicas, s.MaxWorkerReplicas = 0, 0, 0
	for i := range v.c.Spec.WorkerGroupSpecs {
		g := &v.c.Spec.WorkerGroupSpecs[i]
		if g.Suspend != nil && *g.Suspend {
			continue
		}
		_, pods := build.Desired(g)
		s.DesiredWorkerReplicas = plus(s.DesiredWorkerReplicas, pods)
		s.MinWorkerReplicas = plus(s.MinWorkerReplicas, build.Pods(deref(g.MinReplicas, 0), g))
		s.MaxWorkerReplicas = plus(s.MaxWorkerReplicas, build.Pods(deref(g.MaxReplicas, math.MaxInt32), g))
	}
	s.AvailableWorkerReplicas, s.ReadyWorkerReplicas = 0, 0
	for _, pod := range v.workers {
		if running(pod) {
			s.AvailableWorkerReplicas++
		}
		if c := condition(pod, corev1.PodReady); running(pod) && c != nil && c.Status == corev1.ConditionTrue {
			s.ReadyWorkerReplicas++
		}
	}
	t := build.Resources(v.c)
	s.DesiredCPU, s.DesiredMemory, s.DesiredGPU, s.DesiredTPU = t.CPU, t.Memory, t.GPU, t.TPU
}

// plus never exceeds what the field holds.
func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// findHead says where the head is found. Of two heads, the last word stays.
func (v *view) findHead() {
	if len(v.heads) > 1 {
		return
	}
	var info rayv1.HeadInfo
	if head := v.head(); head != nil {
		info.PodName, info.PodIP = head.Name, head.Status.PodIP
	}
	if svc := v.HeadService; svc != nil {
		info.ServiceName, info.ServiceIP = svc.Name, svc.Spec.ClusterIP
		if svc.Spec.ClusterIP == corev1.ClusterIPNone {
			info.ServiceIP = info.PodIP
		}
		v.status.Endpoints = endpoints(svc)
	}
	v.status.Head = info
}

// endpoints are the ports of the head: as seen from outside, or else as the Pod has them.
func endpoints(svc *corev1.Service) map[string]string {
	all := map[string]string{}
	for _, p := range svc.Spec.Ports {
		switch {
		case p.Name == "":
		case p.NodePort != 0:
			all[p.Name] = strconv.Itoa(int(p.NodePort))
		case p.TargetPort.String() != "0":
			all[p.Name] = p.TargetPort.String()
		default:
			all[p.Name] = strconv.Itoa(int(p.Port))
		}
	}
	return all
}

// state says in one word how the cluster is, and why it is not ready.
func (v *view) state() {
	state, reason := v.judge()
	s := v.status
	if state != s.State && state != "" {
		if s.StateTransitionTimes == nil {
			s.StateTransitionTimes = map[rayv1.ClusterState]*metav1.Time{}
		}
		at := metav1.NewTime(v.now)
		s.StateTransitionTimes[state] = &at
	}
	s.State, s.Reason = state, fmt.Sprintf("%.1000s", reason)
}

// judge looks for the first thing that keeps the cluster from being ready.
func (v *view) judge() (state rayv1.ClusterState, reason string) {
	desired := int(v.status.DesiredWorkerReplicas)
	switch {
	case v.goingAway():
		if v.noneLeft() {
			return rayv1.StateSuspended, ""
		}
		return "", fmt.Sprintf("the cluster is being suspended, and %d Pods are left", len(v.Pods))
	case v.failed != nil:
		return "", v.failed.Error()
	case v.steps.Fault != "":
		return "", v.steps.Fault
	case v.head() == nil:
		return "", "there is no head Pod yet"
	case !ready(v.head()):
		return "", notReady("the head Pod", v.head())
	case len(v.workers) > desired:
		return "", fmt.Sprintf("there are %d worker Pods, and %d are wanted", len(v.workers), desired)
	}
	good := 0
	var bad *corev1.Pod
	for _, pod := range v.workers {
		if ready(pod) {
			good++
		} else if bad == nil || trouble(bad) == "" {
			bad = pod
		}
	}
	switch {
	case len(v.workers) == desired && good == desired:
		return rayv1.StateReady, ""
	case bad != nil && trouble(bad) != "":
		return "", fmt.Sprintf("%d of %d worker Pods are ready; %s", good, desired, notReady("worker Pod "+bad.Name, bad))
	}
	return "", fmt.Sprintf("%d of %d worker Pods are ready", good, desired)
}

func notReady(who string, pod *corev1.Pod) string {
	if why := trouble(pod); why != "" {
		return who + " is not ready: " + why
	}
	if pod.DeletionTimestamp != nil {
		return who + " is being deleted"
	}
	return fmt.Sprintf("%s is not ready; it is %s", who, or(string(pod.Status.Phase), string(corev1.PodPending)))
}

// replicaFailure is the reason of that condition. Empty: no Pod is concerned.
func replicaFailure(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.reason
	}
	return ""
}

// differs tells whether a reader would act on the difference between two statuses: what
// a generation or an unchanged sum says is not worth a write.
func differs(a, b *rayv1.RayClusterStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*rayv1.RayClusterStatus{a, b} {
		s.LastUpdateTime, s.ObservedGeneration, s.StateTransitionTimes = nil, 0, nil
		s.DesiredCPU, s.DesiredMemory, s.DesiredGPU, s.DesiredTPU = b.DesiredCPU, b.DesiredMemory, b.DesiredGPU, b.DesiredTPU
	}
	return !equality.Semantic.DeepEqual(a, b)
}

// urgent tells whether somebody waits for the difference. The rest only counts.
func urgent(a, b *rayv1.RayClusterStatus) bool {
	if a.State != b.State || len(a.Conditions) != len(b.Conditions) {
		return true
	}
	for i := range a.Conditions {
		if c := &b.Conditions[i]; c.Type != rayv1.HeadPodReady && a.Conditions[i].Status != c.Status {
			return true
		}
	}
	return false
}
