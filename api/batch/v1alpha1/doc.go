// Package v1alpha1 holds the kind Job of batch.volcano.sh/v1alpha1: groups of
// Pods that run to completion (docs/reference/kinds/vcjob.md). Names, defaults and columns are
// those of Volcano, so that its manifests apply unchanged.
//
// +kubebuilder:object:generate=true
// +groupName=batch.volcano.sh
package v1alpha1
