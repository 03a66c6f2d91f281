package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Command requests an action on an object. The controller deletes the Command and then executes
// the action once.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=k8s4r"
// +kubebuilder:resource:path=commands,singular=command
type Command struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Action to execute, such as AbortJob or ResumeJob.
	// +optional
	Action string `json:"action,omitempty"`
	// TargetObject is the object of the action: a Job of batch.volcano.sh/v1alpha1.
	// +optional
	TargetObject *metav1.OwnerReference `json:"target,omitempty"`
	// Reason is a CamelCase word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message explains the request to people.
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
