// Package v1alpha1 holds the kind Command of bus.volcano.sh/v1alpha1: a wish that is
// carried out once and gone (docs/spec/vcjob.md).
//
// +kubebuilder:object:generate=true
// +groupName=bus.volcano.sh
package v1alpha1
