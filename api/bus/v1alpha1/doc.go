// Package v1alpha1 holds the kind Command of bus.volcano.sh/v1alpha1: a request that is
// carried out once and then deleted (docs/reference/kinds/vcjob.md).
//
// +kubebuilder:object:generate=true
// +groupName=bus.volcano.sh
package v1alpha1
