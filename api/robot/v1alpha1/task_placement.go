package v1alpha1

// PlacementStatus explains why the last search found no robot for a task. The message of the
// condition Placed is rendered from it.
type PlacementStatus struct {
	// Robots is the number of robots that were checked.
	// +optional
	Robots int32 `json:"robots,omitempty"`
	// Robot is the only robot that was checked, because the task must run there.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Robot string `json:"robot,omitempty"`
	// Gang is set if the task's gang found too few robots. The other fields then
	// describe the first replica that found none.
	// +optional
	Gang *GangShortage `json:"gang,omitempty"`
	// Rejections of the most robots, in descending order of their number.
	// +optional
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	Rejections []Rejection `json:"rejections,omitempty"`
	// OmittedRejections is the number of further, different rejections that are not
	// listed.
	// +optional
	OmittedRejections int32 `json:"omittedRejections,omitempty"`
}

// Rejection is one reason why robots cannot take a task.
type Rejection struct {
	// Check is the name of the check that rejected the robots, such as Label, FreeCPU or
	// Constraint.
	// +kubebuilder:validation:MaxLength=63
	Check string `json:"check"`
	// Robots is the number of robots that it rejected.
	Robots int32 `json:"robots"`
	// Want is what the task needs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Want string `json:"want,omitempty"`
	// Got is what the robots have instead.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Got string `json:"got,omitempty"`
}

// GangShortage describes how many replicas of a gang found a robot.
type GangShortage struct {
	// Replicas is the number of replicas that must start together.
	Replicas int32 `json:"replicas"`
	// Created is the number of replicas that exist.
	Created int32 `json:"created"`
	// Placed is the number of replicas that found a robot.
	Placed int32 `json:"placed"`
}

// MaxRejections and MaxRejectionValue bound a PlacementStatus.
const (
	MaxRejections     = 5
	MaxRejectionValue = 1024
)
