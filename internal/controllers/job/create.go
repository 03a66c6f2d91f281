package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// groupName returns the name of one TaskGroup. It fits into a label of its Tasks. If an
// object of another owner has the name, it gets a hash.
func groupName(j *v1alpha1.Job, group string, taken map[string]bool) string {
	if name := naming.ChildName(naming.MaxLabel, j.Name, group); !taken[name] {
		return name
	}
	return naming.UniqueChildName(naming.MaxLabel, string(j.UID), j.Name, group)
}

// newGroup returns one TaskGroup of a Job.
func newGroup(j *v1alpha1.Job, def *v1alpha1.TaskGroupDefinition, name string) *v1alpha1.TaskGroup {
	job := naming.LabelValue(j.Name)
	return &v1alpha1.TaskGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       j.Namespace,
			Name:            name,
			Labels:          map[string]string{v1alpha1.LabelJob: job, v1alpha1.LabelPrefixedJob: job},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))},
		},
		Spec: v1alpha1.TaskGroupSpec{
			JobName:           j.Name,
			GroupName:         def.Name,
			TaskGroupTemplate: *def.TaskGroupTemplate.DeepCopy(),
		},
	}
}
