package raycluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// failure is a failed write together with the reason that it gives the condition ReplicaFailure.
type failure struct {
	reason string // of the condition ReplicaFailure; if empty, it is not set
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// ComputeStatus returns the status that follows from the observed Pods, the planned actions and the
// error of applying them, which may be nil.
func ComputeStatus(now time.Time, o Options, w Input, s Actions, failed error) *rayv1.RayClusterStatus {
	v := &view{Input: w, now: now, opts: o, c: w.Cluster, steps: s, failed: failed, status: w.Cluster.Status.DeepCopy()}
	v.sortPods()
	v.countPods()
	v.setHeadInfo()
	if o.Gates.StatusConditions {
		v.setConditions()
	}
	v.setState()
	v.status.ObservedGeneration = v.c.Generation
	return v.status
}

// view collects the status while ComputeStatus runs.
type view struct {
	Input
	now    time.Time
	opts   Options
	c      *rayv1.RayCluster
	steps  Actions
	failed error
	status *rayv1.RayClusterStatus
	// heads and workers are the Pods that are present.
	heads, workers []*corev1.Pod
}

func (v *view) sortPods() {
	p := &plan{Input: v.Input, now: v.now}
	for _, pod := range v.Pods {
		switch {
		case !p.isPresent(pod):
		case isHead(pod):
			v.heads = append(v.heads, pod)
		default:
			v.workers = append(v.workers, pod)
		}
	}
}

// headPod returns the only head, or nil if there is none or more than one.
func (v *view) headPod() *corev1.Pod {
	if len(v.heads) != 1 {
		return nil
	}
	return v.heads[0]
}

// countPods sets the numbers of desired, running and ready workers and the sum of their resources.
func (v *view) countPods() {
	s := v.status
	s.DesiredWorkerReplicas, s.MinWorkerReplicas, s.MaxWorkerReplicas = 0, 0, 0
	for i := range v.c.Spec.WorkerGroupSpecs {
		g := &v.c.Spec.WorkerGroupSpecs[i]
		if g.Suspend != nil && *g.Suspend {
			continue
		}
		_, pods := build.DesiredReplicas(g)
		s.DesiredWorkerReplicas = addSaturating(s.DesiredWorkerReplicas, pods)
		s.MinWorkerReplicas = addSaturating(s.MinWorkerReplicas, build.PodCount(derefOr(g.MinReplicas, 0), g))
		s.MaxWorkerReplicas = addSaturating(s.MaxWorkerReplicas, build.PodCount(derefOr(g.MaxReplicas, math.MaxInt32), g))
	}
	s.AvailableWorkerReplicas, s.ReadyWorkerReplicas = 0, 0
	for _, pod := range v.workers {
		if isRunning(pod) {
			s.AvailableWorkerReplicas++
		}
		if c := findCondition(pod, corev1.PodReady); isRunning(pod) && c != nil && c.Status == corev1.ConditionTrue {
			s.ReadyWorkerReplicas++
		}
	}
	t := build.SumResources(v.c)
	s.DesiredCPU, s.DesiredMemory, s.DesiredGPU, s.DesiredTPU = t.CPU, t.Memory, t.GPU, t.TPU
}

// addSaturating returns a+b, limited to the largest int32.
func addSaturating(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

func derefOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// setHeadInfo sets the address and endpoints of the head. If there are several heads, the last values
// stay.
func (v *view) setHeadInfo() {
	if len(v.heads) > 1 {
		return
	}
	var info rayv1.HeadInfo
	if head := v.headPod(); head != nil {
		info.PodName, info.PodIP = head.Name, head.Status.PodIP
	}
	if svc := v.HeadService; svc != nil {
		info.ServiceName, info.ServiceIP = svc.Name, svc.Spec.ClusterIP
		if svc.Spec.ClusterIP == corev1.ClusterIPNone {
			info.ServiceIP = info.PodIP
		}
		v.status.Endpoints = headEndpoints(svc)
	}
	v.status.Head = info
}

// headEndpoints returns the ports of the head by name: the node port if there is one, else the
// target port.
func headEndpoints(svc *corev1.Service) map[string]string {
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

// setState sets the state, its transition time and the reason why the cluster is not ready.
func (v *view) setState() {
	state, reason := v.decideState()
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

// decideState returns the state and the first reason that keeps the cluster from being ready.
func (v *view) decideState() (state rayv1.ClusterState, reason string) {
	switch {
	case v.isSuspending():
		if v.hasNoPods() {
			return rayv1.StateSuspended, ""
		}
		return "", fmt.Sprintf("the cluster is being suspended; %d Pods remain", len(v.Pods))
	case v.failed != nil:
		return "", v.failed.Error()
	case v.steps.Problem != "":
		return "", v.steps.Problem
	case v.headPod() == nil:
		return "", "the head Pod is not created yet"
	case !isServing(v.headPod()):
		return "", describeUnreadyPod("the head Pod", v.headPod())
	}
	desired, good := int(v.status.DesiredWorkerReplicas), v.countDesiredServing()
	if good == desired {
		return rayv1.StateReady, ""
	}
	reason = fmt.Sprintf("%d of %d worker Pods are ready", good, desired)
	if bad := v.worstWorker(); bad != nil && describePodProblem(bad) != "" {
		reason += "; " + describeUnreadyPod("worker Pod "+bad.Name, bad)
	}
	return "", reason
}

// isServing reports whether a Pod is ready and is not being deleted.
func isServing(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && isReady(pod) }

// countDesiredServing returns the number of serving workers without the surplus ones of each group.
func (v *view) countDesiredServing() int {
	serving := map[string]int{}
	for _, pod := range v.workers {
		if isServing(pod) {
			serving[pod.Labels[rayv1.LabelGroup]]++
		}
	}
	n := 0
	for i := range v.c.Spec.WorkerGroupSpecs {
		g := &v.c.Spec.WorkerGroupSpecs[i]
		_, pods := build.DesiredReplicas(g)
		n += min(serving[g.GroupName], int(pods))
	}
	return n
}

// worstWorker returns a worker that is not serving, preferably one whose problem is known. Nil if
// there is none.
func (v *view) worstWorker() *corev1.Pod {
	var bad *corev1.Pod
	for _, pod := range v.workers {
		if !isServing(pod) && (bad == nil || describePodProblem(bad) == "") {
			bad = pod
		}
	}
	return bad
}

// describeUnreadyPod returns why a Pod is not ready. name is the subject of the message.
func describeUnreadyPod(name string, pod *corev1.Pod) string {
	if why := describePodProblem(pod); why != "" {
		return name + " is not ready: " + why
	}
	if pod.DeletionTimestamp != nil {
		return name + " is being deleted"
	}
	return fmt.Sprintf("%s is not ready: phase %s", name, firstNonEmpty(string(pod.Status.Phase), string(corev1.PodPending)))
}

// replicaFailureReason returns the reason for the condition ReplicaFailure. If err is not about a Pod, it
// is empty.
func replicaFailureReason(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.reason
	}
	return ""
}

// needsStatusWrite reports whether two statuses differ in a way that matters to a reader. Times,
// the observed generation and the desired resources alone do not justify a write.
func needsStatusWrite(a, b *rayv1.RayClusterStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*rayv1.RayClusterStatus{a, b} {
		s.LastUpdateTime, s.ObservedGeneration, s.StateTransitionTimes = nil, 0, nil
		s.DesiredCPU, s.DesiredMemory, s.DesiredGPU, s.DesiredTPU = b.DesiredCPU, b.DesiredMemory, b.DesiredGPU, b.DesiredTPU
	}
	return !equality.Semantic.DeepEqual(a, b)
}

// statusTimes is what the time of the next status write depends on.
type statusTimes struct {
	// written is when the status was last written or, before that, when the cluster was first seen.
	written time.Time
	// created is when Pods were last created.
	created time.Time
	// deferred counts the writes since the last one that was urgent.
	deferred int
}

func (t *statusTimes) recordWrite(now time.Time, urgent bool) {
	if t.written, t.deferred = now, t.deferred+1; urgent {
		t.deferred = 0
	}
}

const (
	// settleTicks is how many ticks without new Pods a change that is not urgent waits for.
	settleTicks = 2
	// maxStatusTicks is the most ticks without a status write although there is something to write.
	maxStatusTicks = 10
	// maxTickDoublings bounds how often the tick is doubled.
	maxTickDoublings = 3
)

// statusDue returns when to write a status, and whether it needs to be written. A change that is not
// urgent waits until no new Pods were created for a while, so that those of a new cluster share one
// write. The tick doubles with each such write: while Pods become ready one by one, few are enough.
func statusDue(tick time.Duration, times statusTimes, was, next *rayv1.RayClusterStatus) (due time.Time, needed bool) {
	switch {
	case !needsStatusWrite(was, next):
		return time.Time{}, false
	case isUrgentChange(was, next):
		return time.Time{}, true
	}
	due = times.written.Add(tick << min(times.deferred, maxTickDoublings))
	if settled := times.created.Add(settleTicks * tick); settled.After(due) {
		due = settled
	}
	kit.SetEarliest(&due, times.written.Add(maxStatusTicks*tick))
	return due, true
}

// isUrgentChange reports whether the state differs, or which conditions other than HeadPodReady are
// true.
func isUrgentChange(a, b *rayv1.RayClusterStatus) bool {
	return a.State != b.State || !maps.Equal(urgentConditions(a), urgentConditions(b))
}

func urgentConditions(s *rayv1.RayClusterStatus) map[string]bool {
	all := map[string]bool{}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type != rayv1.HeadPodReady && c.Status == metav1.ConditionTrue {
			all[c.Type] = true
		}
	}
	return all
}
