// Package v1alpha1 holds the kinds of robot.k8s4r.io/v1alpha1: Job, TaskGroup,
// Task, Robot and JobTemplate (docs/reference/kinds).
//
// The doc comment of a status field names its only writer. All fields that users can set are
// bounded, so that the API server can validate them and a Task fits into one message to a robot.
//
// +kubebuilder:object:generate=true
// +groupName=robot.k8s4r.io
package v1alpha1
