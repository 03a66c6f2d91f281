package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobTemplate is the template of Jobs that are created later.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=jobtemplates,singular=jobtemplate,shortName=rjt,categories=k8s4r
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type JobTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec of the Jobs that are created from the template.
	Spec JobSpec `json:"spec"`
	// Status of the template.
	// +optional
	Status JobTemplateStatus `json:"status,omitempty"`
}

// JobTemplateStatus has no fields. It exists because all kinds have a status.
type JobTemplateStatus struct{}

// JobTemplateList is a list of JobTemplates.
//
// +kubebuilder:object:root=true
type JobTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobTemplate `json:"items"`
}
