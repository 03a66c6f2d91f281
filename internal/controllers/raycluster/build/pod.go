package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// node is what heads and workers have in common.
type node struct {
	kind      string // a NodeType
	group     string
	template  *corev1.PodTemplateSpec
	params    map[string]string // of ray start, from the user
	resources map[string]string // passed to Ray, from the user
	labels    map[string]string
}

func (n *node) isHead() bool { return n.kind == rayv1.NodeTypeHead }

// rayContainer returns the user's container that runs Ray: the first.
func (n *node) rayContainer() *corev1.Container { return &n.template.Spec.Containers[0] }

func headNode(c *rayv1.RayCluster) *node {
	h := &c.Spec.HeadGroupSpec
	return &node{
		kind: rayv1.NodeTypeHead, group: rayv1.HeadGroup, template: &h.Template,
		params: h.RayStartParams, resources: h.Resources, labels: h.Labels,
	}
}

func workerNode(g *rayv1.WorkerGroupSpec) *node {
	return &node{
		kind: rayv1.NodeTypeWorker, group: g.GroupName, template: &g.Template,
		params: g.RayStartParams, resources: g.Resources, labels: g.Labels,
	}
}

// HeadPod returns the head Pod of a cluster. It has either a name, or HeadNamePrefix as its
// generateName. The template must have a container.
func HeadPod(s *Settings, c *rayv1.RayCluster) *corev1.Pod {
	n := headNode(c)
	pod := &corev1.Pod{ObjectMeta: podMeta(s, c, n, HeadNamePrefix(c))}
	if s.DeterministicHeadName {
		pod.Name, pod.GenerateName = strings.TrimSuffix(pod.GenerateName, "-"), ""
	}
	pod.Annotations[rayv1.AnnotationTemplateHash] = HeadHash(c)
	pod.Annotations[rayv1.AnnotationSharedHash] = SharedHash(c)
	fillSpec(s, c, n, pod)
	addStorage(c, pod)
	if hasAutoscaler(c) {
		addAutoscaler(s, c, pod)
	}
	addSidecars(pod, s.HeadSidecars)
	return pod
}

// WorkerTemplate builds the worker Pods of one group. What they have in common, its hashes included,
// is computed once.
type WorkerTemplate struct {
	settings *Settings
	group    *rayv1.WorkerGroupSpec
	pod      *corev1.Pod
}

// NewWorkerTemplate returns the template of a group's Pods, which have WorkerNamePrefix as their
// generateName. The group's template must have a container.
func NewWorkerTemplate(s *Settings, c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec) *WorkerTemplate {
	n := workerNode(g)
	pod := &corev1.Pod{ObjectMeta: podMeta(s, c, n, WorkerNamePrefix(c, g))}
	pod.Annotations[rayv1.AnnotationTemplateHash] = GroupHash(c, g)
	fillSpec(s, c, n, pod)
	addSidecars(pod, s.WorkerSidecars)
	return &WorkerTemplate{settings: s, group: g, pod: pod}
}

// Pod returns a new Pod of a replica.
func (t *WorkerTemplate) Pod(r Replica) *corev1.Pod {
	pod := t.pod.DeepCopy()
	addReplica(t.settings, pod.Labels, t.group, r)
	return pod
}

// WorkerPod returns a new Pod of a replica of a group.
func WorkerPod(s *Settings, c *rayv1.RayCluster, g *rayv1.WorkerGroupSpec, r Replica) *corev1.Pod {
	return NewWorkerTemplate(s, c, g).Pod(r)
}

// fillSpec sets what heads and workers have in common.
func fillSpec(s *Settings, c *rayv1.RayCluster, n *node, pod *corev1.Pod) {
	pod.Spec = *n.template.Spec.DeepCopy()
	if autoscalerVersion(c) == rayv1.AutoscalerV2 {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	if !n.isHead() && s.WaitForGCS {
		addWaitForGCS(s, c, pod)
	}
	params := startParams(s, c, n)
	setCommand(s, c, pod, startCommand(n, params))
	setEnv(s, c, n, pod, startCommand(n, params))
	addMetricsPort(n, &pod.Spec.Containers[0])
	addSharedMemory(n, pod)
	if s.Probes {
		addProbes(c, n, params, &pod.Spec.Containers[0])
	}
}

// addSidecars adds the operator's containers. A user's container of the same name wins.
func addSidecars(pod *corev1.Pod, sidecars []corev1.Container) {
	for i := range sidecars {
		if findContainer(pod.Spec.Containers, sidecars[i].Name) == nil {
			pod.Spec.Containers = append(pod.Spec.Containers, *sidecars[i].DeepCopy())
		}
	}
}

// findContainer returns the container of that name, or nil.
func findContainer(all []corev1.Container, name string) *corev1.Container {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}
