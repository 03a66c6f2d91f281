package vcjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/naming"
)

// claimName returns the claim of a volume. For a claim without a name it is derived from
// Job and volume, so that no second one is created. Empty: the volume is an emptyDir.
func claimName(j *batchv1.Job, i int) string {
	v := &j.Spec.Volumes[i]
	if v.VolumeClaimName != "" || v.VolumeClaim == nil {
		return v.VolumeClaimName
	}
	// A dash and ten characters of a hash of the UID and the index.
	other := naming.UniqueChildName(naming.MaxName, string(j.UID), "volume", fmt.Sprint(i))
	return naming.ChildName(naming.MaxName, j.Name, "pvc", fmt.Sprintf("%02d", i%100)+other[len(other)-10:])
}

// mountVolumes mounts the volumes of the Job in every container.
func mountVolumes(j *batchv1.Job, spec *batchv1.JobSpec, pod *corev1.Pod) {
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

// newClaims returns the claims that the Job creates.
func newClaims(j *batchv1.Job) []*corev1.PersistentVolumeClaim {
	var all []*corev1.PersistentVolumeClaim
	for i := range j.Spec.Volumes {
		if spec := j.Spec.Volumes[i].VolumeClaim; spec != nil {
			all = append(all, &corev1.PersistentVolumeClaim{ObjectMeta: ownedMeta(j, claimName(j, i)), Spec: *spec.DeepCopy()})
		}
	}
	return all
}

// namedClaims returns the existing claims that the Job refers to.
func namedClaims(spec *batchv1.JobSpec) []string {
	var all []string
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.VolumeClaim == nil && v.VolumeClaimName != "" {
			all = append(all, v.VolumeClaimName)
		}
	}
	return all
}

// ownedMeta returns the metadata of an object that the Job owns.
func ownedMeta(j *batchv1.Job, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:       j.Namespace,
		Name:            name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))},
	}
}
