// Package v1 holds the kind RayCluster of ray.io/v1: a head Pod and groups of
// worker Pods that form a Ray cluster (docs/reference/kinds/raycluster.md). Names, defaults and
// columns are those of KubeRay, so that its manifests apply unchanged.
//
// +kubebuilder:object:generate=true
// +groupName=ray.io
package v1
