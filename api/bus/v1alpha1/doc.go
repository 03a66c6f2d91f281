// Package v1alpha1 holds the kind Command of bus.volcano.sh/v1alpha1: a request for an
// action that is executed once (docs/reference/kinds/vcjob.md).
//
// +kubebuilder:object:generate=true
// +groupName=bus.volcano.sh
package v1alpha1
