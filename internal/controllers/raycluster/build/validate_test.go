package build_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build/buildtest"
)

// Autoscaler v1 accepts a restartPolicy that v2 rejects.
func TestFindWarnings(t *testing.T) {
	for _, c := range []struct {
		name       string
		autoscaled bool
		version    rayv1.AutoscalerVersion
		policy     corev1.RestartPolicy
		want       bool
	}{
		{"v1 and Always", true, rayv1.AutoscalerV1, corev1.RestartPolicyAlways, true},
		{"v1 and OnFailure", true, rayv1.AutoscalerV1, corev1.RestartPolicyOnFailure, true},
		{"v1 and Never", true, rayv1.AutoscalerV1, corev1.RestartPolicyNever, false},
		{"v1 and nothing", true, rayv1.AutoscalerV1, "", false},
		{"a version, and no autoscaler", false, rayv1.AutoscalerV1, corev1.RestartPolicyAlways, false},
		{"v2 refuses it", true, rayv1.AutoscalerV2, corev1.RestartPolicyAlways, false},
	} {
		cluster := &rayv1.RayCluster{Spec: rayv1.RayClusterSpec{
			EnableInTreeAutoscaling: &c.autoscaled, AutoscalerOptions: &rayv1.AutoscalerOptions{Version: &c.version},
			WorkerGroupSpecs: []rayv1.WorkerGroupSpec{{GroupName: "a"}, {GroupName: "b", Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: c.policy}}}},
		}}
		found := build.FindWarnings(cluster)
		if (len(found) == 1) != c.want || c.want && !strings.HasPrefix(found[0].Message, "spec.workerGroupSpecs[b].template.spec.restartPolicy: is "+string(c.policy)) {
			t.Errorf("%s: %v", c.name, found)
		}
	}
}

func TestValidate(t *testing.T) {
	cases, err := buildtest.Cases()
	if err != nil || len(cases) < 50 {
		t.Fatal(len(cases), err)
	}
	for _, c := range cases {
		found := build.Validate(c.Cluster)
		switch {
		case c.Want == "" && len(found) > 0:
			t.Errorf("%s: %v", c.Name, found)
		case c.Want != "" && (len(found) != 1 || !strings.Contains(found[0].Message, c.Want)):
			t.Errorf("%s: %v, want %q", c.Name, found, c.Want)
		case c.Want != "" && strings.HasPrefix(c.Want, "metadata.name") != (found[0].Reason == build.InvalidMetadata):
			t.Errorf("%s: %v", c.Name, found)
		}
	}
}
