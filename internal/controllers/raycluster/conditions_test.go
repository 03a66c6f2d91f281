package raycluster

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// kubeletReason stands for any reason that a kubelet gives a container.
const kubeletReason = "CrashLoopBackOff"

// conditionCase is one row of the table of conditions, with a cluster that comes to it.
type conditionCase struct {
	kind    string
	status  metav1.ConditionStatus
	reason  string
	message string // part of it
	cluster []func(*rayv1.RayCluster)
	pods    []*corev1.Pod
	failed  error
}

// conditionCases is the table of all conditions with their statuses and reasons, in KubeRay's words.
func conditionCases() []conditionCase {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	suspend := func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(true) }
	ready := []*corev1.Pod{head(), pod("a", "g", 0)}
	headIs := func(status metav1.ConditionStatus, reason string) []*corev1.Pod {
		return []*corev1.Pod{head(unready, func(p *corev1.Pod) {
			p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionStatus(status), Reason: reason}
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: kubeletReason}}
		})}
	}
	fails := func(reason string) error { return &failure{reason, errors.New("forbidden")} }
	suspending, suspended := []func(*rayv1.RayCluster){suspend, is(rayv1.RayClusterSuspending)}, []func(*rayv1.RayCluster){suspend, is(rayv1.RayClusterSuspended)}
	return []conditionCase{
		{rayv1.HeadPodReady, no, rayv1.ReasonHeadPodNotFound, "Head Pod not found", nil, nil, nil},
		{rayv1.HeadPodReady, yes, rayv1.ReasonHeadPodRunningAndReady, "", nil, ready, nil},
		{rayv1.HeadPodReady, no, kubeletReason, "ray", nil, headIs(no, "ContainersNotReady"), nil},
		{rayv1.HeadPodReady, unknown, "NodeStatusUnknown", "", nil, headIs(unknown, "NodeStatusUnknown"), nil},
		{rayv1.HeadPodReady, no, rayv1.ReasonUnknown, "", nil, headIs(no, ""), nil},
		{rayv1.HeadPodReady, no, rayv1.ReasonUnknown, "no condition Ready yet", nil, []*corev1.Pod{head(pending)}, nil},
		{rayv1.RayClusterProvisioned, no, rayv1.ReasonPodsProvisioning, "being provisioned for first time", nil, nil, nil},
		{rayv1.RayClusterProvisioned, yes, rayv1.ReasonAllPodRunningAndReadyFirstTime, "ready for the first time", nil, ready, nil},
		{rayv1.RayClusterProvisioned, no, rayv1.ReasonPodsProvisioning, "RayCluster has been suspended", suspending, nil, nil},
		{rayv1.RayClusterProvisioned, no, rayv1.ReasonPodsProvisioning, "RayCluster has been suspended", append(suspended, is(rayv1.RayClusterProvisioned)), nil, nil},
		{rayv1.RayClusterSuspending, no, rayv1.RayClusterSuspending, "", nil, nil, nil},
		{rayv1.RayClusterSuspending, yes, rayv1.ReasonSuspending, "", []func(*rayv1.RayCluster){suspend}, ready, nil},
		{rayv1.RayClusterSuspending, no, rayv1.RayClusterSuspending, "", suspending, nil, nil},
		{rayv1.RayClusterSuspended, no, rayv1.RayClusterSuspended, "", nil, nil, nil},
		{rayv1.RayClusterSuspended, yes, rayv1.ReasonSuspended, "", suspending, nil, nil},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedDeleteAllPods, "forbidden", nil, ready, fails(rayv1.ReasonFailedDeleteAllPods)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedDeleteHeadPod, "forbidden", nil, ready, fails(rayv1.ReasonFailedDeleteHeadPod)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedCreateHeadPod, "forbidden", nil, ready, fails(rayv1.ReasonFailedCreateHeadPod)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedDeleteWorkerPod, "forbidden", nil, ready, fails(rayv1.ReasonFailedDeleteWorkerPod)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedCreateWorkerPod, "forbidden", nil, ready, fails(rayv1.ReasonFailedCreateWorkerPod)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedUpdateRayCluster, "forbidden", nil, ready, fails(rayv1.ReasonFailedUpdateRayCluster)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonFailedUpdatePod, "forbidden", nil, ready, fails(rayv1.ReasonFailedUpdatePod)},
		{rayv1.ReplicaFailure, yes, rayv1.ReasonPodLimitExceeded, "is more than", []func(*rayv1.RayCluster){replicas(rayv1.MaxGroupReplicas + 1)}, ready, nil},
	}
}

// listedCondition is what identifies a row of the table.
type listedCondition struct {
	kind   string
	status metav1.ConditionStatus
	reason string
}

// listedConditions returns the rows of the table.
var listedConditions = sync.OnceValue(func() map[listedCondition]bool {
	rows := map[listedCondition]bool{}
	for _, c := range conditionCases() {
		rows[listedCondition{c.kind, c.status, c.reason}] = true
	}
	return rows
})

// isListedCondition reports whether a row of the table has the type, status and reason.
func isListedCondition(c metav1.Condition) bool {
	return listedConditions()[listedCondition{c.Type, c.Status, c.Reason}]
}

func TestComputeStatus_HasTheReasonsOfTheTable(t *testing.T) {
	for _, c := range conditionCases() {
		w := Input{Cluster: testCluster(testGroup("g", 1, 1)), Pods: c.pods}
		for _, change := range c.cluster {
			change(w.Cluster)
		}
		status := ComputeStatus(t0, testOptions(), w, Plan(t0, testOptions(), w), c.failed)
		got := meta.FindStatusCondition(status.Conditions, c.kind)
		if got == nil || got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.message) {
			t.Errorf("%s is %+v, want %s, %s, %q", c.kind, got, c.status, c.reason, c.message)
		}
		for _, other := range status.Conditions {
			if !isListedCondition(other) {
				t.Errorf("%s=%s has a reason that no row has: %s", other.Type, other.Status, other.Reason)
			}
		}
	}
}

// TestConditionCases_HaveEveryReason finds a reason that is declared and has no row.
func TestConditionCases_HaveEveryReason(t *testing.T) {
	const declarations = "../../../api/ray/v1/status.go"
	file, err := parser.ParseFile(token.NewFileSet(), declarations, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		declared++
		reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !slices.ContainsFunc(conditionCases(), func(c conditionCase) bool { return c.reason == reason }) {
			t.Errorf("%s: no row has the reason, %v", spec.Names[0].Name, err)
		}
		return true
	})
	if declared < 12 {
		t.Errorf("only %d reasons in %s", declared, declarations)
	}
}
