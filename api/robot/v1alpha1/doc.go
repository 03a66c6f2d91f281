// Package v1alpha1 holds the kinds of robot.k8s4r.io/v1alpha1: Job, TaskGroup,
// Task, Robot and JobTemplate (docs/reference/kinds).
//
// A status field names its one writer. Everything that a person can write has
// a bound, so that the API server can check it and a Task fits one message to
// a robot.
//
// +kubebuilder:object:generate=true
// +groupName=robot.k8s4r.io
package v1alpha1
