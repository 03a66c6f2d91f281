package vcjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/child"
)

// claimName of a volume. One that the user did not name is called after the Job,
// with what looks like chance but is derived, so that no second claim is made.
// Empty: the volume is no claim, but a directory that goes with the Pod.
func claimName(j *batchv1.Job, i int) string {
	v := &j.Spec.Volumes[i]
	if v.VolumeClaimName != "" || v.VolumeClaim == nil {
		return v.VolumeClaimName
	}
	// A dash and ten letters of a hash over all of it.
	other := child.Other(child.MaxName, string(j.UID), "volume", fmt.Sprint(i))
	return child.Name(child.MaxName, j.Name, "pvc", fmt.Sprintf("%02d", i%100)+other[len(other)-10:])
}

// mount gives every container the volumes of the Job.
func mount(j *batchv1.Job, spec *batchv1.JobSpec, pod *corev1.Pod) {
	for i := range spec.Volumes {
		name := fmt.Sprintf("vcjob-volume-%d", i)
		source := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		if claim := claimName(j, i); claim != "" {
			source = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		eachContainer(pod, func(c *corev1.Container) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: spec.Volumes[i].MountPath})
		})
	}
}

// claims are those that the Job makes.
func claims(j *batchv1.Job) []*corev1.PersistentVolumeClaim {
	var all []*corev1.PersistentVolumeClaim
	for i := range j.Spec.Volumes {
		if spec := j.Spec.Volumes[i].VolumeClaim; spec != nil {
			all = append(all, &corev1.PersistentVolumeClaim{ObjectMeta: owned(j, claimName(j, i)), Spec: *spec.DeepCopy()})
		}
	}
	return all
}

// namedClaims are those that somebody else makes.
func namedClaims(spec *batchv1.JobSpec) []string {
	var all []string
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.VolumeClaim == nil && v.VolumeClaimName != "" {
			all = append(all, v.VolumeClaimName)
		}
	}
	return all
}

// owned names an object that goes with the Job.
func owned(j *batchv1.Job, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:       j.Namespace,
		Name:            name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))},
	}
}
