package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1alpha1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// JobTemplate is the template of a Job of batch.volcano.sh/v1alpha1 that JobFlows create.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=k8s4r"
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:path=jobtemplates,singular=jobtemplate,shortName=jt
type JobTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec of the Jobs. The labels and annotations of the template are not copied to the Jobs.
	// +optional
	Spec batchv1alpha1.JobSpec `json:"spec,omitempty"`
	// Status of the template.
	// +optional
	Status JobTemplateStatus `json:"status,omitempty"`
}

// JobTemplateStatus is the observed state of a template. Only the jobtemplate controller writes
// it.
type JobTemplateStatus struct {
	// JobDependsOnList lists the names of existing Jobs that were created from the template.
	// +optional
	JobDependsOnList []string `json:"jobDependsOnList,omitempty"`
}

// JobTemplateList is a list of JobTemplates.
//
// +kubebuilder:object:root=true
type JobTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobTemplate `json:"items"`
}
