package v1alpha1

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HeartbeatSlice has the times at which the server last received a message of some robots of its
// namespace. status.heartbeatSlice of a Robot names its slice. Many heartbeats share one write, and
// the server acknowledges none that the slice does not cover. Only the server writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=heartbeatslices,singular=heartbeatslice
// +kubebuilder:printcolumn:name="Period",type=string,JSONPath=`.acknowledgmentPeriod`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HeartbeatSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// AcknowledgmentPeriod is for how long after a write that changes the time of a robot the server
	// may acknowledge heartbeats of this robot. The manager counts the self-stop deadline of tasks
	// from when it sees the change, and adds the period.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	AcknowledgmentPeriod metav1.Duration `json:"acknowledgmentPeriod"`
	// Heartbeats of the robots, by name.
	// +optional
	// +kubebuilder:validation:MaxItems=500
	// +listType=atomic
	Heartbeats []RobotHeartbeat `json:"heartbeats,omitempty"`
}

// MaxSliceRobots is the largest number of robots in a HeartbeatSlice.
const MaxSliceRobots = 500

// RobotHeartbeat is when the server last received a message of a robot.
type RobotHeartbeat struct {
	// Robot is the name of the Robot.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Robot string `json:"robot"`
	// UID of the Robot.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
	// Time of the last message, other than a last will, by the server's clock. While the robot is
	// connected, it is updated at least every third of --offline-after.
	Time metav1.MicroTime `json:"time"`
}

// HeartbeatSliceList is a list of HeartbeatSlices.
//
// +kubebuilder:object:root=true
type HeartbeatSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HeartbeatSlice `json:"items"`
}

// FindHeartbeat returns the entry of a Robot, or nil. S may be nil.
func (s *HeartbeatSlice) FindHeartbeat(r *Robot) *RobotHeartbeat {
	if s == nil || s.Namespace != r.Namespace {
		return nil
	}
	i, found := slices.BinarySearchFunc(s.Heartbeats, r.Name, func(h RobotHeartbeat, name string) int { return cmp.Compare(h.Robot, name) })
	if !found || s.Heartbeats[i].UID != r.UID {
		return nil
	}
	return &s.Heartbeats[i]
}

// LastHeartbeat returns when the server last received a message of the robot, as far as it is
// stored: the later of status.lastHeartbeatTime and the time in the robot's slice. S may be nil or
// any other slice. It returns nil if there was no message.
func (r *Robot) LastHeartbeat(s *HeartbeatSlice) *metav1.MicroTime {
	last := r.Status.LastHeartbeatTime
	if s == nil || s.Name != r.Status.HeartbeatSlice {
		return last
	}
	if h := s.FindHeartbeat(r); h != nil && (last == nil || last.Time.Before(h.Time.Time)) {
		return &h.Time
	}
	return last
}

// judgedBySlices is how far status.acknowledgedUntil is ahead of a robot in a HeartbeatSlice.
const judgedBySlices = 365 * 24 * time.Hour

// AcknowledgedBySlice returns status.acknowledgedUntil of a robot whose heartbeats are acknowledged
// by its HeartbeatSlice, and that was last seen at that time.
func AcknowledgedBySlice(lastSeen time.Time) *metav1.MicroTime {
	return &metav1.MicroTime{Time: lastSeen.Add(judgedBySlices)}
}
