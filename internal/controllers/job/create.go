package job

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
)

// groupName is the name of one TaskGroup. It stands in a label of its Tasks,
// so it is no longer than a label may be. A name that somebody else holds is
// told apart by a hash.
func groupName(j *v1alpha1.Job, group string, taken map[string]bool) string {
	if name := child.Name(child.MaxLabel, j.Name, group); !taken[name] {
		return name
	}
	return child.Other(child.MaxLabel, string(j.UID), j.Name, group)
}

// newGroup is one TaskGroup of a Job.
func newGroup(j *v1alpha1.Job, def *v1alpha1.TaskGroupDefinition, name string) *v1alpha1.TaskGroup {
	return &v1alpha1.TaskGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       j.Namespace,
			Name:            name,
			Labels:          map[string]string{v1alpha1.LabelJob: child.Label(j.Name)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))},
		},
		Spec: v1alpha1.TaskGroupSpec{
			JobName:           j.Name,
			GroupName:         def.Name,
			TaskGroupTemplate: *def.TaskGroupTemplate.DeepCopy(),
		},
	}
}
