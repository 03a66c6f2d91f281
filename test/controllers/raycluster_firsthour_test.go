package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build/buildtest"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRayCluster_FirstHourFromKubeRay is what a user of KubeRay does first, as in
// docs/how-to/move-from-kuberay.md. The test plays KubeRay's operator and the kubelet. It is not
// parallel, because it reads a metric of the process.
func TestRayCluster_FirstHourFromKubeRay(t *testing.T) {
	h := &firstHour{space: shareServer(t, changedServer, "first-hour").namespace(t, "first-hour")}
	h.startsWithKubeRay()
	for _, step := range []struct {
		name string
		do   func(*firstHour)
	}{
		{"install beside KubeRay: nothing changes", (*firstHour).installs},
		{"take over: no Pod is recreated", (*firstHour).takesOver},
		{"one edit sets RollingUpdate and a new image: all Pods are replaced", (*firstHour).editsOnce},
		{"scale", (*firstHour).scales},
		{"suspend and resume", (*firstHour).suspends},
		{"delete", (*firstHour).deletes},
		{"go back: KubeRay finds the Pods as its own", (*firstHour).goesBack},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			s := *h.space
			s.T = t
			step.do(&firstHour{&s, h.ours, h.definition, h.lease})
		})
		if !ok {
			return
		}
	}
}

// firstHour has two clusters, c and kept, of one head and two workers each.
type firstHour struct {
	*space
	ours       *unstructured.Unstructured // the definition of RayClusters
	definition *unstructured.Unstructured // KubeRay's
	lease      *coordinationv1.Lease      // of KubeRay's operator
}

var firstHourClusters = []string{"c", "kept"}

// startsWithKubeRay creates what KubeRay's operator leaves behind, and its Lease.
func (h *firstHour) startsWithKubeRay() {
	h.Helper()
	for plural, kind := range map[string]string{"rayjobs": "RayJob", "rayservices": "RayService", "raycronjobs": "RayCronJob"} {
		h.must(h.Create(h.Context(), rayDefinition(plural, kind)))
	}
	h.ours, h.definition = h.storedDefinition(), h.kubeRayDefinition()
	h.applyDefinition(h.definition)
	h.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: raycluster.KubeRayLease}}
	h.must(h.Create(h.Context(), h.lease))
	h.holdLease("kuberay")
	for _, name := range firstHourClusters {
		c := h.ray(name, nil, rayGroup("g", 2))
		settings := build.DefaultSettings()
		for _, o := range buildtest.Objects(&settings, c) {
			if _, isPod := o.(*corev1.Pod); !isPod {
				h.must(h.Create(h.Context(), o))
			}
		}
		h.createKubeRayPod(build.HeadPod(&settings, c), "aaaaa")
		for i, suffix := range []string{"bbbbb", "ccccc"} {
			h.createKubeRayPod(build.WorkerPod(&settings, c, &c.Spec.WorkerGroupSpecs[0], build.Replica{Index: i}), suffix)
		}
	}
	h.kubelet()
}

// createKubeRayPod creates a Pod with the annotations and a random name as from KubeRay's operator.
func (h *firstHour) createKubeRayPod(pod *corev1.Pod, suffix string) {
	h.Helper()
	pod.Name, pod.GenerateName = pod.GenerateName+suffix, ""
	for key := range pod.Annotations {
		if strings.HasPrefix(key, "ray.k8s4r.io/") {
			delete(pod.Annotations, key)
		}
	}
	if pod.Labels[rayv1.LabelNodeType] == rayv1.NodeTypeHead {
		pod.Annotations[rayv1.AnnotationVersion], pod.Annotations[rayv1.AnnotationRecreateHash] = "v1.7.0", "0123456789"
	}
	testkit.EventuallyNoError(h, waitTimeout, "the namespace has an account for Pods", func() error { return h.Create(h.Context(), pod.DeepCopy()) })
}

// kubeRayDefinition returns a definition of RayClusters that knows the upgrade strategies of KubeRay
// only.
func (h *firstHour) kubeRayDefinition() *unstructured.Unstructured {
	h.Helper()
	kubeRay := h.storedDefinition()
	versions, _, err := unstructured.NestedSlice(kubeRay.Object, "spec", "versions")
	h.must(err)
	free := func(fields map[string]any) map[string]any {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": fields}
	}
	for _, v := range versions {
		strategy := map[string]any{"type": "string", "enum": []any{"Recreate", "None"}}
		spec := free(map[string]any{"upgradeStrategy": free(map[string]any{"type": strategy})})
		v.(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": free(map[string]any{"spec": spec})}
	}
	h.must(unstructured.SetNestedSlice(kubeRay.Object, versions, "spec", "versions"))
	return kubeRay
}

func (h *firstHour) storedDefinition() *unstructured.Unstructured {
	h.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	h.must(h.Get(h.Context(), client.ObjectKey{Name: "rayclusters.ray.io"}, crd))
	return crd
}

// applyDefinition replaces the definition of RayClusters and waits until it is in force.
func (h *firstHour) applyDefinition(crd *unstructured.Unstructured) {
	h.Helper()
	testkit.EventuallyNoError(h, waitTimeout, "the definition is replaced", func() error {
		now := h.storedDefinition()
		now.Object["spec"] = crd.Object["spec"]
		return h.Update(h.Context(), now)
	})
	isKubeRays := crd == h.definition
	testkit.EventuallyNoError(h, waitTimeout, "the definition is in force", func() error {
		probe := &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "probe"}}
		probe.Spec.HeadGroupSpec.Template = rayTemplate()
		upgrade(rayv1.UpgradeRollingUpdate)(probe)
		err := h.Create(h.Context(), probe, client.DryRunAll)
		return check(apierrors.IsInvalid(err) == isKubeRays, "RollingUpdate: %v", err)
	})
}

// holdLease makes KubeRay's operator run, or stop if holder is empty.
func (h *firstHour) holdLease(holder string) {
	h.Helper()
	h.must(h.Get(h.Context(), client.ObjectKeyFromObject(h.lease), h.lease))
	h.lease.Spec.HolderIdentity, h.lease.Spec.RenewTime = &holder, ptr.To(metav1.NewMicroTime(time.Now().Add(time.Hour)))
	h.must(h.Update(h.Context(), h.lease))
}

// touch changes a label, so that the controller does not wait for its next check of the Lease.
func (h *firstHour) touch(name, value string) {
	h.Helper()
	h.editRay(name, func(c *rayv1.RayCluster) { c.Labels = map[string]string{"touched": value} })
}

// leavesAlone checks that the manager looks at the clusters and changes nothing.
func (h *firstHour) leavesAlone(value string) {
	h.Helper()
	before, looks := h.rayNodes("kept", ""), h.leftAlone()
	h.touch("kept", value)
	testkit.EventuallyNoError(h, waitTimeout, "a reconcile of the cluster", func() error { return check(h.leftAlone() > looks, "none") })
	if after := h.rayNodes("kept", ""); !equality.Semantic.DeepEqual(after, before) {
		h.Errorf("beside KubeRay, the Pods changed from %+v to %+v", before, after)
	}
}

func (h *firstHour) installs() {
	for _, name := range firstHourClusters {
		h.awaitNodes(name, "", 3, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}
	h.applyDefinition(h.ours)
	h.manage(onlyRay)
	h.leavesAlone("beside")
}

func (h *firstHour) takesOver() {
	was := map[string][]corev1.Pod{}
	for _, name := range firstHourClusters {
		was[name] = h.rayNodes(name, "")
	}
	h.holdLease("")
	for _, name := range firstHourClusters {
		h.touch(name, "taken-over")
		h.rayReady(name)
		now := h.awaitNodes(name, "", 3, func(p *corev1.Pod) bool { return p.Annotations[rayv1.AnnotationTemplateHash] != "" })
		if !slices.Equal(uidsOf(now), uidsOf(was[name])) {
			h.Errorf("%v became %v", podNames(was[name]), podNames(now))
		}
		if got := h.awaitHead(name).Annotations[rayv1.AnnotationVersion]; got != build.Version {
			h.Errorf("the head has the version %s", got)
		}
	}
}

func uidsOf(pods []corev1.Pod) []string {
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = string(pods[i].UID)
	}
	return all
}

func (h *firstHour) editsOnce() {
	for _, name := range firstHourClusters {
		was := uidsOf(h.rayNodes(name, ""))
		h.editRay(name, func(c *rayv1.RayCluster) {
			upgrade(rayv1.UpgradeRollingUpdate)(c)
			c.Spec.HeadGroupSpec.Template.Spec.Containers[0].Image = "new"
			c.Spec.WorkerGroupSpecs[0].Template.Spec.Containers[0].Image = "new"
		})
		now := h.awaitNodes(name, "", 3, func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "new" })
		if slices.ContainsFunc(uidsOf(now), func(uid string) bool { return slices.Contains(was, uid) }) {
			h.Errorf("%v are not all new", podNames(now))
		}
		h.rayReady(name)
	}
}

func (h *firstHour) scales() {
	for _, n := range []int32{4, 1, 2} {
		h.editRay("kept", func(c *rayv1.RayCluster) { c.Spec.WorkerGroupSpecs[0].Replicas = &n })
		h.awaitNodes("kept", "g", int(n))
		h.awaitRay("kept", func(c *rayv1.RayCluster) error {
			return check(c.Status.State == rayv1.StateReady && c.Status.ReadyWorkerReplicas == n, "not ready")
		})
	}
}

func (h *firstHour) suspends() {
	h.editRay("kept", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(true) })
	h.awaitRay("kept", func(c *rayv1.RayCluster) error { return check(c.Status.State == rayv1.StateSuspended, "not suspended") })
	h.awaitNodes("kept", "", 0)
	h.editRay("kept", func(c *rayv1.RayCluster) { c.Spec.Suspend = ptr.To(false) })
	h.rayReady("kept")
	h.awaitNodes("kept", "", 3)
}

func (h *firstHour) deletes() {
	h.must(h.Delete(h.Context(), &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: "c"}}))
	testkit.EventuallyNoError(h, waitTimeout, "the cluster and its objects are gone", func() error {
		err := h.Get(h.Context(), h.key("c-head-svc"), &corev1.Service{})
		pods := h.rayNodes("c", "")
		return check(apierrors.IsNotFound(err) && len(pods) == 0, "Pods %v, Service: %v", podNames(pods), err)
	})
	h.awaitNodes("kept", "", 3)
}

// goesBack follows the order of the page: first the strategy that KubeRay does not have, then its
// operator, then its definition.
func (h *firstHour) goesBack() {
	h.editRay("kept", func(c *rayv1.RayCluster) { c.Spec.UpgradeStrategy = nil })
	h.rayRests("kept")
	h.holdLease("kuberay")
	h.leavesAlone("back")
	h.applyDefinition(h.definition)
	c := h.awaitRay("kept", func(*rayv1.RayCluster) error { return nil })
	pods := h.rayNodes("kept", "")
	for i := range pods {
		if p := &pods[i]; !metav1.IsControlledBy(p, c) || p.Labels[rayv1.LabelIdentifier] == "" || len(p.Finalizers) > 0 {
			h.Errorf("Pod %+v", p.ObjectMeta)
		}
	}
	heads, workers := h.rayNodes("kept", rayv1.HeadGroup), h.rayNodes("kept", "g")
	if len(heads) != 1 || heads[0].Annotations[rayv1.AnnotationVersion] == "" || heads[0].Annotations[rayv1.AnnotationRecreateHash] == "" || len(workers) != 2 || len(c.Finalizers) > 0 {
		h.Errorf("cluster %+v, heads %v, workers %v", c.ObjectMeta, podNames(heads), podNames(workers))
	}
	h.worksAsKubeRay(c, &workers[0])
	h.leavesAlone("kuberay-wrote")
	h.stop()
}

// worksAsKubeRay replaces a worker and writes the status, as KubeRay's operator does.
func (h *firstHour) worksAsKubeRay(c *rayv1.RayCluster, worker *corev1.Pod) {
	h.Helper()
	h.must(h.Delete(h.Context(), worker))
	settings := build.DefaultSettings()
	h.createKubeRayPod(build.WorkerPod(&settings, c, &c.Spec.WorkerGroupSpecs[0], build.Replica{}), "ddddd")
	h.awaitNodes("kept", "g", 2, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.Name != worker.Name })
	testkit.EventuallyNoError(h, waitTimeout, "KubeRay writes the status", func() error {
		var now rayv1.RayCluster
		if err := h.Get(h.Context(), h.key("kept"), &now); err != nil {
			return err
		}
		now.Status.Reason = "written by KubeRay"
		return h.Status().Update(h.Context(), &now)
	})
}
