package v1alpha1

import (
	"cmp"
	"slices"
	"strings"
)

// ShareLabelPrefix begins the names of labels in a Robot's metadata by which other
// namespaces may use it: ShareLabelPrefix + NAMESPACE, with the value "true". Not in
// spec.labels, which a robot fills by what it says of itself.
const ShareLabelPrefix = "share.robot.k8s4r.io/"

// Serves tells whether the tasks of a namespace may use the robot: it is the robot's
// own, or the robot is shared with it.
func (r *Robot) Serves(namespace string) bool {
	return r.Namespace == namespace || r.Labels[ShareLabelPrefix+namespace] == "true"
}

// Users are the namespaces whose tasks may use the robot: its own first, the others
// in order.
func (r *Robot) Users() []string {
	var others []string
	for label, value := range r.Labels {
		if to, ok := strings.CutPrefix(label, ShareLabelPrefix); ok && value == "true" && to != r.Namespace {
			others = append(others, to)
		}
	}
	slices.Sort(others)
	return append([]string{r.Namespace}, others...)
}

// CompareAge is below zero when r counts and not other, of two Robots of one id: the
// older one, and of two from the same second the one whose namespace sorts first.
func (r *Robot) CompareAge(other *Robot) int {
	return cmp.Or(r.CreationTimestamp.Compare(other.CreationTimestamp.Time), strings.Compare(r.Namespace, other.Namespace))
}

// RobotNamespace is where the Robot of an attempt is: in the Task's own namespace,
// unless the attempt says another.
func (t *Task) RobotNamespace(attempt int32) string {
	if a := t.Status.Entry(attempt); a != nil && a.RobotNamespace != "" {
		return a.RobotNamespace
	}
	return t.Namespace
}
