package build

import (
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// Replica identifies a worker Pod in its group.
type Replica struct {
	// Name is the name of the replica, unique in the cluster. Only set in groups with several
	// hosts.
	Name string
	// Index is the index of the replica in its group, from 0.
	Index int
	// Host is the index of the Pod in its replica, from 0.
	Host int
}

// isOwnedByRayService reports whether a RayService created the cluster.
func isOwnedByRayService(c *rayv1.RayCluster) bool {
	return c.Labels[rayv1.LabelOriginatedFromKind] == "RayService"
}

// identifier returns the value of LabelIdentifier for the nodes of a kind.
func identifier(c *rayv1.RayCluster, kind string) string {
	return lastBytes(c.Name+"-"+kind, maxLabel)
}

// podLabels returns the labels of a head or worker. The user's labels win, except for the three
// that select the controller's Pods.
func podLabels(s *Settings, c *rayv1.RayCluster, n *node) map[string]string {
	all := maps.Clone(s.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		rayv1.LabelIsRayNode:  "yes",
		rayv1.LabelIdentifier: identifier(c, n.kind),
		rayv1.LabelAppName:    rayv1.AppName,
		rayv1.LabelCreatedBy:  rayv1.CreatedBy,
	})
	if isOwnedByRayService(c) {
		all[rayv1.LabelServe] = strconv.FormatBool(!n.isHead())
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

// addReplica labels a worker with its replica. Such labels of the template are removed, because the
// Pod would look like part of another replica.
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
	if !n.isHead() {
		return all
	}
	all[rayv1.AnnotationFTEnabled] = strconv.FormatBool(faultTolerant(c))
	all[rayv1.AnnotationRecreateHash] = RecreateHash(c)
	all[rayv1.AnnotationVersion] = Version
	if usesRedis(c) {
		all[rayv1.AnnotationStorageNamespace] = storageNamespace(c)
	}
	return all
}

// podMeta returns the metadata of a head or worker. The namespace of the template is ignored: Pods
// run in the namespace of the cluster.
func podMeta(s *Settings, c *rayv1.RayCluster, n *node, prefix string) metav1.ObjectMeta {
	meta := ownedMeta(c, "", podLabels(s, c, n))
	meta.GenerateName = prefix
	meta.Annotations = podAnnotations(s, c, n)
	meta.Finalizers = slices.Clone(n.template.Finalizers)
	return meta
}
