package job

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
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
func newGroup(j *v1alpha1.Job, group string, template *v1alpha1.TaskGroupTemplate, name string) *v1alpha1.TaskGroup {
	return &v1alpha1.TaskGroup{
		ObjectMeta: newMeta(j, name),
		Spec: v1alpha1.TaskGroupSpec{
			JobName:           j.Name,
			GroupName:         group,
			TaskGroupTemplate: *template.DeepCopy(),
		},
	}
}

// newMeta returns the metadata of an object that the job owns.
func newMeta(j *v1alpha1.Job, name string) metav1.ObjectMeta {
	job := naming.LabelValue(j.Name)
	return metav1.ObjectMeta{
		Namespace:       j.Namespace,
		Name:            name,
		Labels:          map[string]string{v1alpha1.LabelJob: job, v1alpha1.LabelPrefixedJob: job},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.GroupVersion.WithKind("Job"))},
	}
}

// newRevision returns the revision with encoded content. If an object of another owner has its name, that
// gets another hash.
func newRevision(j *v1alpha1.Job, data []byte, number int64, taken map[string]bool) *appsv1.ControllerRevision {
	hash := jobrevision.HashData(data)
	name := naming.ChildName(naming.MaxName, j.Name, hash)
	if taken[name] {
		name = naming.UniqueChildName(naming.MaxName, string(j.UID), j.Name, hash)
	}
	r := &appsv1.ControllerRevision{ObjectMeta: newMeta(j, name), Data: runtime.RawExtension{Raw: data}, Revision: number}
	setChangeCause(r, j.Annotations[annotationChangeCause])
	return r
}

// setChangeCause sets why a revision was made, if that is known.
func setChangeCause(r *appsv1.ControllerRevision, cause string) {
	if cause != "" {
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, annotationChangeCause, cause)
	}
}
