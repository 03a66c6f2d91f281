package vcjob

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Volcano's documentation requests nvidia.com/gpu without a limit, and the API server
// rejects such Pods.
func TestDefaulted_LimitsRequestedDevices(t *testing.T) {
	one, two := resource.MustParse("1"), resource.MustParse("2")
	j := job("", 1)
	j.Spec.Tasks[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": one, "nvidia.com/gpu": one, "example.com/arm": one},
		Limits:   corev1.ResourceList{"example.com/arm": two},
	}
	got := Defaulted(&j.Spec).Tasks[0].Template.Spec.Containers[0].Resources.Limits
	want := corev1.ResourceList{"nvidia.com/gpu": one, "example.com/arm": two}
	if len(got) != len(want) || !got["nvidia.com/gpu"].Equal(one) || !got["example.com/arm"].Equal(two) {
		t.Errorf("limits %v, want %v", got, want)
	}
	if limits := j.Spec.Tasks[0].Template.Spec.Containers[0].Resources.Limits; len(limits) != 1 {
		t.Errorf("the Job itself has changed: %v", limits)
	}
}
