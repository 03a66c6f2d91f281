package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Command asks a controller to act on an object, once. It is deleted before it is
// carried out.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=k8s4r"
// +kubebuilder:resource:path=commands,singular=command
type Command struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Action to take, such as AbortJob or ResumeJob.
	// +optional
	Action string `json:"action,omitempty"`
	// TargetObject to act on: a Job of batch.volcano.sh/v1alpha1.
	// +optional
	TargetObject *metav1.OwnerReference `json:"target,omitempty"`
	// Reason in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// CommandList is a list of Commands.
//
// +kubebuilder:object:root=true
type CommandList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Command `json:"items"`
}
