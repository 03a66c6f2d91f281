package apiconv

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// NewSystemMatcher returns a function that reports whether a robot should have a replica of a group of a
// system job, also while it is offline or cordoned. Its second argument is RobotFrom of the first.
func NewSystemMatcher(namespace string, j *v1alpha1.Job, g *v1alpha1.TaskGroupTemplate) func(*v1alpha1.Robot, *placement.Robot) bool {
	var tasks []placement.Task
	for _, def := range g.TaskDefinitions() {
		tasks = append(tasks, TaskFrom(namespace, "", def, nil, nil))
	}
	matches := placement.NewMatcher(RulesFrom(j, g.Constraints), tasks)
	return func(r *v1alpha1.Robot, as *placement.Robot) bool {
		return r.ServesNamespace(namespace) && r.DeletionTimestamp == nil && as.Phase != lifecycle.RobotPending && matches(as)
	}
}

// IsSameRobot reports whether the change of a robot is irrelevant to where tasks can run, and to which of them may be
// interrupted.
func IsSameRobot(before, after *v1alpha1.Robot) bool {
	return RobotFrom(before).Equal(RobotFrom(after).Offer) && slices.Equal(before.UserNamespaces(), after.UserNamespaces()) &&
		(before.DeletionTimestamp == nil) == (after.DeletionTimestamp == nil) && apiequality.Semantic.DeepEqual(before.Status.Holds, after.Status.Holds)
}
