package v1alpha1

import (
	"cmp"
	"slices"
	"strings"
)

// ShareLabelPrefix is the prefix of labels in a Robot's metadata.labels that let another
// namespace use it: ShareLabelPrefix + NAMESPACE, with the value "true". They have no effect in
// spec.labels, which the agent can add to.
const ShareLabelPrefix = "share.robot.k8s4r.io/"

// ServesNamespace reports whether tasks of a namespace may use the robot: it is in that
// namespace, or shared with it.
func (r *Robot) ServesNamespace(namespace string) bool {
	return r.Namespace == namespace || r.Labels[ShareLabelPrefix+namespace] == "true"
}

// UserNamespaces returns the namespaces whose tasks may use the robot: its own first, then the
// others in alphabetical order.
func (r *Robot) UserNamespaces() []string {
	var others []string
	for label, value := range r.Labels {
		if to, ok := strings.CutPrefix(label, ShareLabelPrefix); ok && value == "true" && to != r.Namespace {
			others = append(others, to)
		}
	}
	slices.Sort(others)
	return append([]string{r.Namespace}, others...)
}

// CompareAge orders Robots with the same id. The first one is used: the older one, or if both
// were created in the same second, the one with the lower UID, which no user can choose.
func (r *Robot) CompareAge(other *Robot) int {
	return cmp.Or(r.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(r.UID, other.UID))
}

// NamespaceOfRobot returns the namespace of the Robot of an attempt: the one recorded in the
// attempt, or else that of the Task.
func (t *Task) NamespaceOfRobot(attempt int32) string {
	if a := t.Status.FindAttempt(attempt); a != nil && a.RobotNamespace != "" {
		return a.RobotNamespace
	}
	return t.Namespace
}
