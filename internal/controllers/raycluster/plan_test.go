package raycluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/go-logr/logr"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// pod returns a Pod of testCluster, changed by f.
func pod(name, group string, index int, f ...func(*corev1.Pod)) *corev1.Pod {
	c := testCluster(testGroup(group, 1, 1))
	settings := build.DefaultSettings()
	p := build.HeadPod(&settings, c)
	if group != rayv1.HeadGroup {
		p = build.WorkerPod(&settings, c, &c.Spec.WorkerGroupSpecs[0], build.Replica{Index: index})
	}
	p.Name, p.GenerateName, p.UID = name, "", types.UID(name)
	p.CreationTimestamp = metav1.NewTime(t0.Add(-time.Hour))
	p.Spec.NodeName = "node"
	setRunning(p, true)
	for _, change := range f {
		change(p)
	}
	return p
}

func head(f ...func(*corev1.Pod)) *corev1.Pod { return pod("head", rayv1.HeadGroup, 0, f...) }

// ofKubeRay makes a Pod one of KubeRay's.
func ofKubeRay(p *corev1.Pod) {
	for _, ours := range []string{rayv1.AnnotationTemplateHash, rayv1.AnnotationSharedHash} {
		delete(p.Annotations, ours)
	}
	if isHead(p) {
		p.Annotations[rayv1.AnnotationVersion], p.Annotations[rayv1.AnnotationRecreateHash] = "v1.7.0", "hash of KubeRay"
	}
}

func failed(p *corev1.Pod)  { p.Status.Phase = corev1.PodFailed }
func pending(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }
func unready(p *corev1.Pod) { setRunning(p, false) }
func young(p *corev1.Pod)   { p.CreationTimestamp = metav1.NewTime(t0.Add(-time.Minute)) }

// ends sets the end of the grace period, relative to t0.
func ends(in time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(t0.Add(in))) }
}

func strategy(kind rayv1.UpgradeType) func(*rayv1.RayCluster) {
	return func(c *rayv1.RayCluster) { c.Spec.UpgradeStrategy = &rayv1.RayClusterUpgradeStrategy{Type: &kind} }
}

func newImage(c *rayv1.RayCluster) {
	c.Spec.WorkerGroupSpecs[0].Template.Spec.Containers[0].Image = "new"
}

func newHeadImage(c *rayv1.RayCluster) {
	c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image = "new"
}

func newPort(c *rayv1.RayCluster) {
	c.Spec.HeadGroupSpec.RayStartParams = map[string]string{"port": "6380"}
}

func is(kind string) func(*rayv1.RayCluster) {
	return func(c *rayv1.RayCluster) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind})
	}
}

func replicas(n int32) func(*rayv1.RayCluster) {
	return func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = &n }
}

func hosts(n int32) func(*rayv1.RayCluster) {
	return func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].NumOfHosts = n }
}

// host makes a Pod a host of a multi-host replica.
func host(replica string, index int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[rayv1.LabelReplicaName], p.Labels[rayv1.LabelHostIndex] = replica, strconv.Itoa(index)
	}
}

// summarizeActions returns the actions as text: -name for a deletion, +group/index for a creation.
func summarizeActions(s Actions) string {
	var all []string
	for _, d := range s.Delete {
		all = append(all, "-"+d.Pod.Name)
	}
	for _, r := range s.Restamp {
		all = append(all, "~"+r.Pod.Name)
	}
	for _, p := range s.Create {
		at := slotOf(p)
		all = append(all, fmt.Sprintf("+%s/%d", at.group, at.index))
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	return strings.Join(all, " ")
}

func TestPlan(t *testing.T) {
	suspend := func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(true) }
	onlyHead := func(c *rayv1.RayCluster) {
		c.Annotations = map[string]string{rayv1.AnnotationDisableHeadRestart: "true"}
		is(rayv1.RayClusterProvisioned)(c)
	}
	deleted := func(c *rayv1.RayCluster) { c.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }
	for _, c := range []struct {
		name    string
		cluster []func(*rayv1.RayCluster) // with one group g of two workers
		pods    []*corev1.Pod
		input   func(*Input)
		want    string
	}{
		{name: "empty cluster: creates the head first, then the workers", want: "+headgroup/0 +g/0 +g/1"},
		{name: "complete cluster: does nothing", pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: ""},
		{name: "fills the lowest free index", pods: []*corev1.Pod{head(), pod("b", "g", 1)}, want: "+g/0"},
		{name: "does not create a head twice that is not in the cache yet", input: func(w *Input) { w.Creating = map[string]bool{"c-head-abcde": true} }, want: "+g/0 +g/1"},
		{name: "workers that are not in the cache yet delay their group, not the head", input: func(w *Input) { w.Creating = map[string]bool{"c-g-worker-abcde": true} }, want: "+headgroup/0"},
		{name: "workers of a group named head are no heads", input: func(w *Input) { w.Creating = map[string]bool{"c-head-worker-abcde": true} }, want: "+headgroup/0 +g/0 +g/1"},
		{name: "deletes a failed head, and workers wait for the next one", pods: []*corev1.Pod{head(failed)}, want: "-head"},
		{name: "deletes a failed worker, and replaces it once it is gone", pods: []*corev1.Pod{head(), pod("a", "g", 0, failed)}, want: "-a"},
		{name: "delays the deletion of a worker that fails repeatedly", pods: []*corev1.Pod{head(), pod("a", "g", 0, failed, young), pod("b", "g", 1)},
			input: func(w *Input) { w.Retries = map[slot]int{{"g", 0}: 7} }, want: ""},
		{name: "a terminating Pod keeps its slot", pods: []*corev1.Pod{head(), pod("a", "g", 0, ends(time.Second)), pod("b", "g", 1)}, want: ""},
		{name: "a Pod past its grace period loses its slot", pods: []*corev1.Pod{head(), pod("a", "g", 0, ends(-podLostAfter)), pod("b", "g", 1)}, want: "+g/0"},
		{name: "a terminating Pod without a node loses its slot", pods: []*corev1.Pod{head(), pod("a", "g", 0, ends(time.Minute)), pod("b", "g", 1)},
			input: func(w *Input) { w.MissingNodes = map[string]bool{"node": true} }, want: "+g/0"},
		{name: "replaces a head past its grace period", pods: []*corev1.Pod{head(ends(-time.Hour)), pod("a", "g", 0), pod("b", "g", 1)}, want: "+headgroup/0"},
		{name: "two heads: does nothing", pods: []*corev1.Pod{head(), pod("twin", rayv1.HeadGroup, 0)}, want: ""},
		{name: "scale down: deletes the unready worker first", cluster: []func(*rayv1.RayCluster){replicas(2)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1, unready), pod("d", "g", 2, young)}, want: "-b"},
		{name: "scale down: deletes pending before running, although it is older", cluster: []func(*rayv1.RayCluster){replicas(1)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0, pending), pod("b", "g", 1, unready, young)}, want: "-a"},
		{name: "scale down: deletes the youngest before the oldest", cluster: []func(*rayv1.RayCluster){replicas(1)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0, young), pod("b", "g", 1)}, want: "-a"},
		{name: "scale down: terminating workers count", cluster: []func(*rayv1.RayCluster){replicas(1)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1, ends(time.Second))}, want: ""},
		{name: "scale down: deleted workers count before the cache shows it", cluster: []func(*rayv1.RayCluster){replicas(1)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, input: func(w *Input) { w.Deleting = map[types.UID]bool{"a": true} }, want: ""},
		{name: "scale down: leaves the choice to the autoscaler", cluster: []func(*rayv1.RayCluster){replicas(1), func(c *rayv1.RayCluster) { c.Spec.EnableInTreeAutoscaling = ptr.To(true) }},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: ""},
		{name: "deletes the workers of a removed group", pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1), pod("x", "old", 0)}, want: "-x"},
		{name: "numOfHosts increased: deletes single-host workers, which keep their slots", cluster: []func(*rayv1.RayCluster){hosts(2)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-a -b"},
		{name: "numOfHosts increased: replaces them once they are gone", cluster: []func(*rayv1.RayCluster){hosts(2)},
			pods: []*corev1.Pod{head(), pod("b", "g", 1, ends(time.Second))}, want: "+g/0 +g/0"},
		{name: "multi-host: ignores Pods without replica and index labels", cluster: []func(*rayv1.RayCluster){hosts(2), replicas(0)},
			pods: []*corev1.Pod{head(), pod("a", "g", 0, func(p *corev1.Pod) { delete(p.Labels, rayv1.LabelReplicaIndex) })}, want: ""},
		{name: "numOfHosts reduced: deletes the hosts", pods: []*corev1.Pod{head(), pod("a", "g", 0, host("g-x", 0)), pod("b", "g", 0, host("g-x", 1))}, want: "-a -b"},
		{name: "numOfHosts reduced: deletes the hosts despite an autoscaler", cluster: []func(*rayv1.RayCluster){func(c *rayv1.RayCluster) { c.Spec.EnableInTreeAutoscaling = ptr.To(true) }},
			pods: []*corev1.Pod{head(), pod("a", "g", 0, host("g-x", 0)), pod("b", "g", 1)}, want: "-a"},
		{name: "suspend: waits for the status", cluster: []func(*rayv1.RayCluster){suspend}, pods: []*corev1.Pod{head()}, want: ""},
		{name: "suspend: deletes all Pods, the head last", cluster: []func(*rayv1.RayCluster){suspend, is(rayv1.RayClusterSuspending)}, pods: []*corev1.Pod{head(), pod("x", "old", 0)}, want: "-x -head"},
		{name: "suspend: completes even if the spec has changed back", cluster: []func(*rayv1.RayCluster){is(rayv1.RayClusterSuspending)}, pods: []*corev1.Pod{head()}, want: "-head"},
		{name: "suspended cluster: does nothing", cluster: []func(*rayv1.RayCluster){is(rayv1.RayClusterSuspended)}, want: ""},
		{name: "Recreate: deletes all Pods", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRecreate), newImage}, pods: []*corev1.Pod{head(), pod("a", "g", 0)}, want: "-a -head"},
		{name: "Recreate: keeps a head that would not be recreated", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRecreate), newImage, onlyHead},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: ""},
		{name: "RollingUpdate: keeps a head that would not be recreated, and replaces workers", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newImage, newHeadImage, onlyHead},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-b"},
		{name: "RollingUpdate: replaces no workers that could not work with a kept head", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newPort, onlyHead},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: ""},
		{name: "restamps a head of another version, whatever its hash", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRecreate), newImage},
			pods: []*corev1.Pod{head(func(p *corev1.Pod) { p.Annotations[rayv1.AnnotationVersion] = "v1.7.0" }), pod("a", "g", 0), pod("b", "g", 1)}, want: "~head"},
		{name: "RollingUpdate: starts with one worker", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newImage, newHeadImage},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-b"},
		{name: "RollingUpdate: waits for the replacement", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newImage},
			pods: []*corev1.Pod{head(), pod("a", "g", 0)}, want: "+g/1"},
		{name: "RollingUpdate: deletes the head after the workers", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newHeadImage},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-head"},
		{name: "RollingUpdate: keeps the head while a worker is not ready", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newHeadImage},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1, unready)}, want: ""},
		{name: "RollingUpdate: deletes an unready head first, because workers wait for it", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newImage, newHeadImage},
			pods: []*corev1.Pod{head(pending), pod("a", "g", 0, unready), pod("b", "g", 1, unready)}, want: "-head"},
		{name: "RollingUpdate: keeps an unready head with the current template", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newImage},
			pods: []*corev1.Pod{head(unready), pod("a", "g", 0), pod("b", "g", 1)}, want: "-b"},
		{name: "RollingUpdate: deletes the head first if its port changes", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newPort},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-head"},
		{name: "RollingUpdate: deletes the head first if its Service name changes", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), func(c *rayv1.RayCluster) {
			c.Spec.HeadGroupSpec.HeadService = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		}}, pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-head"},
		{name: "RollingUpdate: deletes the head first if the Ray version changes", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), func(c *rayv1.RayCluster) { c.Spec.RayVersion = "2.53.0" }},
			pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-head"},
		{name: "RollingUpdate: deletes the head first if authentication changes", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), func(c *rayv1.RayCluster) {
			c.Spec.RayVersion, c.Spec.AuthOptions = "2.53.0", &rayv1.AuthOptions{Mode: rayv1.AuthToken}
		}}, pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: "-head"},
		{name: "RollingUpdate: replaces no worker before the old head is gone", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newPort},
			pods: []*corev1.Pod{head(ends(time.Second)), pod("a", "g", 0), pod("b", "g", 1)}, want: ""},
		{name: "RollingUpdate: replaces workers after the head", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newPort},
			pods: []*corev1.Pod{pod("a", "g", 0), pod("b", "g", 1)}, want: "+headgroup/0 -b"},
		{name: "RollingUpdate: restamps a head of KubeRay and keeps it", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newPort},
			pods: []*corev1.Pod{head(func(p *corev1.Pod) { p.Annotations = map[string]string{rayv1.AnnotationVersion: "v1.7.0"} })}, want: "+g/0 +g/1 ~head"},
		{name: "no strategy: adopts the Pods of KubeRay, once", pods: []*corev1.Pod{head(ofKubeRay), pod("a", "g", 0, ofKubeRay), pod("b", "g", 1)}, want: "~head ~a"},
		{name: "no strategy: a worker of KubeRay with another image gets no hash", cluster: []func(*rayv1.RayCluster){newImage},
			pods: []*corev1.Pod{head(ofKubeRay), pod("a", "g", 0, ofKubeRay), pod("b", "g", 1)}, want: "~head"},
		{name: "RollingUpdate: replaces a worker of KubeRay with another image", cluster: []func(*rayv1.RayCluster){strategy(rayv1.UpgradeRollingUpdate), newImage},
			pods: []*corev1.Pod{head(), pod("a", "g", 0, ofKubeRay), pod("b", "g", 1, ofKubeRay)}, want: "-b"},
		{name: "no strategy: an edit replaces nothing", cluster: []func(*rayv1.RayCluster){newImage, newHeadImage}, pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1)}, want: ""},
		{name: "deleted cluster: does nothing", cluster: []func(*rayv1.RayCluster){deleted}, pods: []*corev1.Pod{head()}, want: ""},
		{name: "cluster managed by another controller: does nothing", cluster: []func(*rayv1.RayCluster){func(c *rayv1.RayCluster) { c.Spec.ManagedBy = ptr.To(rayv1.ManagedByMultiKueue) }}, want: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := Input{Cluster: testCluster(testGroup("g", 2, 1)), Pods: c.pods}
			for _, change := range c.cluster {
				change(w.Cluster)
			}
			if c.input != nil {
				c.input(&w)
			}
			s := Plan(t0, testOptions(), w)
			if got := summarizeActions(s); got != c.want || len(s.Rejections) > 0 {
				t.Errorf("actions are %q, want %q; rejections %v, reasons %q", got, c.want, s.Rejections, s.Reasons)
			}
		})
	}
}

// Admission lets an update suspend a group beside an autoscaler. As in KubeRay, a warning is all that
// follows, even if the Pods have failed.
func TestPlan_KeepsPodsOfAGroupSuspendedBesideAnAutoscaler(t *testing.T) {
	w := Input{Cluster: testCluster(testGroup("g", 2, 1)), Pods: []*corev1.Pod{head(), pod("a", "g", 0), pod("b", "g", 1, failed)}}
	w.Cluster.Spec.EnableInTreeAutoscaling, w.Cluster.Spec.WorkerGroupSpecs[0].Suspend = ptr.To(true), ptr.To(true)
	s := Plan(t0, testOptions(), w)
	if len(s.Rejections) != 1 || s.Rejections[0].Reason != build.InvalidSpec || !strings.Contains(s.Rejections[0].Message, "spec.workerGroupSpecs[g].suspend") {
		t.Errorf("rejections %v", s.Rejections)
	}
	s.Rejections = nil
	if got := fmt.Sprintf("%+v", s); got != fmt.Sprintf("%+v", Actions{}) {
		t.Errorf("actions %s", got)
	}
}

// A label value and the name of a group may both have 63 characters.
func TestPlan_LongGroupNamesGiveValidLabels(t *testing.T) {
	for n := 50; n <= 63; n++ {
		w := Input{Cluster: testCluster(testGroup(strings.Repeat("g", n), 2, 2)), Pods: []*corev1.Pod{head()}}
		replicas := map[string]int{}
		for _, p := range Plan(t0, testOptions(), w).Create {
			for k, v := range p.Labels {
				if bad := validation.IsValidLabelValue(v); len(bad) > 0 {
					t.Errorf("%d characters: label %s=%s: %v", n, k, v, bad)
				}
			}
			replicas[p.Labels[rayv1.LabelReplicaName]]++
		}
		if len(replicas) != 2 {
			t.Errorf("%d characters: the replicas are %v", n, replicas)
		}
	}
}

// A cluster that was stored without a container can be deleted, with an event that its keys may
// still be in Redis.
func TestPlan_RemovesFinalizerWithoutCleanupContainer(t *testing.T) {
	w := Input{Cluster: testCluster()}
	c := w.Cluster
	c.Spec.HeadGroupSpec.Template.Spec.Containers = nil
	c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "redis:6379"}
	c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.NewTime(t0)), []string{rayv1.FinalizerRedisCleanup}
	w.Pods = []*corev1.Pod{head()}
	if s := Plan(t0, testOptions(), w); summarizeActions(s) != "-head" || s.RemoveFinalizer != "" || s.RequeueAt.IsZero() {
		t.Errorf("with a head: actions %q, finalizer %q, requeue at %s", summarizeActions(s), s.RemoveFinalizer, s.RequeueAt)
	}
	w.Pods = nil
	s := Plan(t0, testOptions(), w)
	if s.RemoveFinalizer == "" || s.Job != nil || len(s.Events) != 1 || s.Events[0].Type != corev1.EventTypeWarning || !strings.Contains(s.Events[0].Message, "no container") {
		t.Errorf("without a head: finalizer %q, Job %v, events %v", s.RemoveFinalizer, s.Job, s.Events)
	}
	o := testOptions()
	o.Build.RedisCleanup = false
	if s := Plan(t0, o, w); s.RemoveFinalizer == "" || len(s.Events) > 0 {
		t.Errorf("with RedisCleanup off: finalizer %q, events %v", s.RemoveFinalizer, s.Events)
	}
}

// The condition names the container that is not ready, and not a completed init container.
func TestComputeStatus_NamesUnreadyContainer(t *testing.T) {
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	broken := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}}
	waits := func(why string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}}
	}
	for _, c := range []struct {
		name       string
		init, main []corev1.ContainerStatus
		want       string
	}{
		{"the Ray container after a completed init container", []corev1.ContainerStatus{{Name: "init", State: done, Ready: true}},
			[]corev1.ContainerStatus{{Name: "ray", State: waits("CrashLoopBackOff")}}, "CrashLoopBackOff"},
		{"a completed init container that is not ready", []corev1.ContainerStatus{{Name: "init", State: done}},
			[]corev1.ContainerStatus{{Name: "ray", State: waits("ImagePullBackOff")}}, "ImagePullBackOff"},
		{"an init container that failed", []corev1.ContainerStatus{{Name: "init", State: broken}},
			[]corev1.ContainerStatus{{Name: "ray", State: waits("PodInitializing")}}, "Error"},
		{"a completed Ray container", nil, []corev1.ContainerStatus{{Name: "ray", State: done}}, "Completed"},
		{"a running container that is not ready", []corev1.ContainerStatus{{Name: "init", State: done, Ready: true}},
			[]corev1.ContainerStatus{{Name: "ray", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, "ContainersNotReady"},
	} {
		h := head(unready)
		h.Status.Conditions[0].Reason = "ContainersNotReady"
		h.Status.InitContainerStatuses, h.Status.ContainerStatuses = c.init, c.main
		w := Input{Cluster: testCluster(), Pods: []*corev1.Pod{h}}
		status := ComputeStatus(t0, testOptions(), w, Plan(t0, testOptions(), w), nil)
		if got := meta.FindStatusCondition(status.Conditions, rayv1.HeadPodReady); got == nil || got.Reason != c.want {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// Every plan gives a Pod the same name. A replacement, or a Pod whose name is taken, gets another
// one.
func TestPlan_DerivesPodNames(t *testing.T) {
	plan := func(f func(*Input)) []*corev1.Pod {
		w := Input{Cluster: testCluster(testGroup("g", 1, 1), testGroup("h", 1, 1))}
		f(&w)
		return Plan(t0, testOptions(), w).Create
	}
	first := names(plan(func(*Input) {}))
	if again := names(plan(func(*Input) {})); again != first || first == "" {
		t.Errorf("names are %s, then %s", first, again)
	}
	for name, f := range map[string]func(*Input){
		"another cluster of that name": func(w *Input) { w.Cluster.UID = "v" },
		"other generations":            func(w *Input) { w.Generations = map[string]int{rayv1.HeadGroup: 1, "g": 1, "h": 2} },
		"names of another owner": func(w *Input) {
			w.Taken = map[string]bool{}
			for _, name := range strings.Fields(first) {
				w.Taken[name] = true
			}
		},
	} {
		for _, p := range plan(f) {
			if strings.Contains(first, p.Name) || len(p.Name) < 6 {
				t.Errorf("%s: %s is one of %s", name, p.Name, first)
			}
		}
	}
}

// The generation of a group is raised once for all missing Pods, and only if none of them can be
// created without: after a crash, the next controller must find the names that were about to be used.
func TestPlan_RaisesGenerationOfGroup(t *testing.T) {
	w := Input{Cluster: testCluster(testGroup("g", 1, 1), testGroup("h", 2, 1)), Generations: map[string]int{"h": 4, "removed": 9}}
	first := Plan(t0, testOptions(), w).Create
	w.PastNames = map[slot]map[string]bool{headSlot: {first[0].Name: true}, {"h", 1}: {first[3].Name: true}}
	s := Plan(t0, testOptions(), w)
	if got := names(s.Create); got != names(first[1:3]) {
		t.Errorf("created %s, want the Pods with unused names: %s", got, names(first[1:3]))
	}
	if got, want := formatGenerations(s.Generations), `{"h":4,"headgroup":1}`; got != want {
		t.Errorf("annotation is %s, want %s", got, want)
	}
	w.PastNames[slot{"h", 0}] = map[string]bool{first[2].Name: true}
	s = Plan(t0, testOptions(), w)
	if got, want := formatGenerations(s.Generations), `{"h":5,"headgroup":1}`; got != want {
		t.Errorf("annotation is %s, want %s", got, want)
	}
	w.Generations, w.PastNames = s.Generations, nil
	if s = Plan(t0, testOptions(), w); len(s.Create) != 4 || s.Generations != nil {
		t.Errorf("next plan creates %s and writes %v", names(s.Create), s.Generations)
	}
}

// Earlier versions counted each slot. The highest count of a group has names that none of its slots
// had before, except those that a Pod has.
func TestGenerationsOf(t *testing.T) {
	for text, want := range map[string]string{
		"": "null", "no JSON": "null", `{"g":1,"h":2}`: `{"g":1,"h":2}`,
		`{"g/0":3,"g/17":1,"headgroup/0":2}`:        `{"g":3,"headgroup":2}`,
		`{"/1":1,"g":0,"h":-1,"i":1000000001,"":7}`: `{}`,
	} {
		c := testCluster()
		c.Annotations = map[string]string{rayv1.AnnotationRefilled: text}
		if got := formatGenerations(generationsOf(c)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Of 10,000 derived names some are equal. The second of two equal names gets another one, the same in
// a plan of both Pods as in a later one.
func TestPlan_EqualNamesOfTwoSlots(t *testing.T) {
	w := Input{Cluster: testCluster(testGroup("g", 2, 1)), Pods: []*corev1.Pod{head()}}
	all := Plan(t0, testOptions(), w).Create
	all[0].Name = all[1].Name // as if the suffixes were equal
	w.Pods = append(w.Pods, all[0])
	s := Plan(t0, testOptions(), w)
	if len(s.Create) != 1 || s.Create[0].Name == all[1].Name || s.Generations != nil {
		t.Errorf("created %s, generations %v", names(s.Create), s.Generations)
	}
}

// A quota that admits three of a hundred Pods rejects the rest of the first batch. Later passes try
// one, until there is room.
func TestCreatePods_StopsAfterFailedBatch(t *testing.T) {
	var mu sync.Mutex
	var tried, room int
	w := Input{Cluster: testCluster(testGroup("g", 100, 1)), Pods: []*corev1.Pod{head()}}
	api := interceptor.NewClient(fakeapi.NewBuilder(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			mu.Lock()
			defer mu.Unlock()
			if tried++; room == 0 {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", fmt.Errorf("exceeded quota"))
			}
			room--
			w.Pods = append(w.Pods, o.(*corev1.Pod))
			return nil
		},
	})
	c := &Controller{
		Client: api, Now: time.Now, Recorder: events.NewFakeRecorder(1000), Options: testOptions(),
		expect: kit.NewExpectations(time.Now, logr.Discard()), memory: kit.NewObjectMemory(newMemory),
	}
	for _, pass := range []struct {
		room, tried, workers int
		fails                bool
	}{{3, firstBatch, 3, true}, {0, 1, 3, true}, {1, 1 + 2, 4, true}, {100, 96, 100, false}} {
		tried, room = 0, pass.room
		err := c.createPods(t.Context(), &w, Plan(t0, testOptions(), w).Create)
		if (replicaFailureReason(err) == rayv1.ReasonFailedCreateWorkerPod) != pass.fails || tried != pass.tried {
			t.Errorf("%+v: %d requests, %v", pass, tried, err)
		}
		if workers := len(w.Pods) - 1; workers != pass.workers || len(c.expect.PendingCreates(w.Cluster.UID)) != workers {
			t.Errorf("%+v: %d workers, %d pending", pass, workers, len(c.expect.PendingCreates(w.Cluster.UID)))
		}
	}
}

func TestSplitBatches(t *testing.T) {
	workers := func(n int) []*corev1.Pod { return slices.Repeat([]*corev1.Pod{pod("w", "g", 0)}, n) }
	for _, c := range []struct {
		name  string
		pods  []*corev1.Pod
		first int
		want  string
	}{
		{"nothing", nil, firstBatch, "[]"},
		{"the head is alone", append([]*corev1.Pod{head()}, workers(3)...), firstBatch, "[1 3]"},
		{"no head is missing", workers(3), firstBatch, "[3]"},
		{"batches grow up to the largest", workers(300), firstBatch, "[16 32 64 64 64 60]"},
		{"after an error", append([]*corev1.Pod{head()}, workers(6)...), 1, "[1 1 2 3]"},
	} {
		var sizes []int
		for _, batch := range splitBatches(c.pods, c.first) {
			sizes = append(sizes, len(batch))
		}
		if got := fmt.Sprint(sizes); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
