package controllers

import "testing"

// TestParity_RaySamples applies the RayClusters of KubeRay's samples, and compares all Pods and the
// objects around them with those that KubeRay's operator makes.
func TestParity_RaySamples(t *testing.T) {
	t.Parallel()
	if n := runSamples(t, paritySystem(t), "ray"); n < 46 {
		t.Errorf("there are %d samples", n)
	}
}
