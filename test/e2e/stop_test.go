package e2e

import (
	"testing"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// A stop does not wait for kubectl get -w in another terminal until it times out.
func TestUp_StopsWhileClientsWatch(t *testing.T) {
	t.Parallel()
	up := testkit.StartUp(t, testkit.ControlPlaneOnly...)
	w, err := testkit.NewClient(t, up.RESTConfig()).Watch(t.Context(), &v1alpha1.RobotList{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := up.Terminate(); err != nil {
		t.Errorf("k8s4r up: %v\n%s", err, up.OutputTail())
	}
}
