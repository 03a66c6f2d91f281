package build

import (
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Replica is which Pod of a group of workers one is.
type Replica struct {
	// Name of the replica, unique in the cluster. Only of groups with several hosts.
	Name string
	// Index of the replica in its group, from 0.
	Index int
	// Host is the number of the Pod in its replica, from 0.
	Host int
}

// serves tells whether a RayService has made the cluster.
func serves(c *rayv1.RayCluster) bool {
	return c.Labels[rayv1.LabelOriginatedFromKind] == "RayService"
}

// podLabels are those of a head or worker. The user's count more than ours, but for
// the three by which the controller finds its Pods.
func podLabels(s *Settings, c *rayv1.RayCluster, n *node) map[string]string {
	all := maps.Clone(s.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		rayv1.LabelIsRayNode:  "yes",
		rayv1.LabelIdentifier: last(c.Name+"-"+n.kind, maxLabel),
		rayv1.LabelAppName:    rayv1.AppName,
		rayv1.LabelCreatedBy:  rayv1.CreatedBy,
	})
	if serves(c) {
		all[rayv1.LabelServe] = strconv.FormatBool(!n.head())
	}
	maps.Copy(all, n.template.Labels)
	maps.Copy(all, n.labels)
	maps.Copy(all, map[string]string{
		rayv1.LabelCluster:  c.Name,
		rayv1.LabelNodeType: n.kind,
		rayv1.LabelGroup:    n.group,
	})
	return all
}

// addReplica labels a worker with its place in the group, and no other: one that a
// template gave would be taken for what is left of a replica.
func addReplica(s *Settings, labels map[string]string, g *rayv1.WorkerGroupSpec, r Replica) {
	if !s.ReplicaIndex {
		return
	}
	delete(labels, rayv1.LabelReplicaName)
	delete(labels, rayv1.LabelHostIndex)
	labels[rayv1.LabelReplicaIndex] = strconv.Itoa(r.Index)
	if g.NumOfHosts > 1 {
		labels[rayv1.LabelReplicaName] = r.Name
		labels[rayv1.LabelHostIndex] = strconv.Itoa(r.Host)
	}
}

func podAnnotations(s *Settings, c *rayv1.RayCluster, n *node) map[string]string {
	all := map[string]string{}
	maps.Copy(all, s.Annotations)
	maps.Copy(all, n.template.Annotations)
	if v, ok := c.Annotations[rayv1.AnnotationOverwriteCommand]; ok {
		all[rayv1.AnnotationOverwriteCommand] = v
	}
	if !n.head() {
		return all
	}
	all[rayv1.AnnotationFTEnabled] = strconv.FormatBool(faultTolerant(c))
	all[rayv1.AnnotationRecreateHash] = RecreateHash(c)
	all[rayv1.AnnotationVersion] = Version
	if faultTolerant(c) {
		all[rayv1.AnnotationStorageNamespace] = storageNamespace(c)
	}
	return all
}

// podMeta is the metadata of a head or worker. The template's namespace does not
// count: a Pod is where its cluster is.
func podMeta(s *Settings, c *rayv1.RayCluster, n *node, prefix string) metav1.ObjectMeta {
	meta := owned(c, "", podLabels(s, c, n))
	meta.GenerateName = prefix
	meta.Annotations = podAnnotations(s, c, n)
	meta.Finalizers = slices.Clone(n.template.Finalizers)
	return meta
}
