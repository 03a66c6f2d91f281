// Package v1alpha1 holds the kinds JobFlow and JobTemplate of
// flow.volcano.sh/v1alpha1: workflows of Jobs
// (docs/reference/kinds/jobflow.md). The fields of Volcano keep its names, spelling included. Fields of our own are
// optional, and a manifest without them has the same meaning as in Volcano.
//
// +kubebuilder:object:generate=true
// +groupName=flow.volcano.sh
package v1alpha1
