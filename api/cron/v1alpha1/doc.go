// Package v1alpha1 holds the kind CronJobFlow of flow.k8s4r.io/v1alpha1: JobFlows on
// a schedule (docs/reference/kinds/cronjobflow.md). Its fields and behavior are those of CronJob
// of batch/v1.
//
// +kubebuilder:object:generate=true
// +groupName=flow.k8s4r.io
package v1alpha1
