package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	readyRestarts = 10
	// readyCreates is the time for which objects are created after each start.
	readyCreates = 2 * time.Second
)

// readyKinds are paths and manifests of objects that each start creates, by kind.
var readyKinds = map[string]string{
	"/apis/robot.k8s4r.io/v1alpha1/namespaces/default/jobs": `{"apiVersion": "robot.k8s4r.io/v1alpha1", "kind": "Job", "metadata": {"generateName": "ready-"}, "spec": {"desiredState": "paused",
		"taskGroups": [{"name": "main", "tasks": [{"name": "main", "driver": "exec", "config": {"execConfig": {"command": "true"}}}]}]}}`,
	"/apis/flow.volcano.sh/v1alpha1/namespaces/default/jobflows": `{"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": {"generateName": "ready-"}, "spec": {"flows": [{"name": "missing"}]}}`,
	"/api/v1/namespaces/default/configmaps":                      `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "ready-"}}`,
}

// upReady503 restarts `k8s4r up`, orderly and by SIGKILL, and creates objects at once when it
// reports that it is ready.
func upReady503(t testing.TB, figures map[string]float64) {
	up := testkit.StartUp(t, "--robots=0")
	unavailable := 0
	for i := range countTries(readyRestarts) {
		if i%2 == 0 {
			up.Stop()
		} else {
			up.Kill()
		}
		up.Start()
		for deadline := time.Now().Add(readyCreates); time.Now().Before(deadline); {
			unavailable += countUnavailable(t, up)
		}
	}
	figures["up_ready_503"] = float64(unavailable)
	if unavailable > 0 {
		t.Errorf("%d creates were answered with status 503 after `k8s4r up` was ready", unavailable)
	}
}

// countUnavailable creates one object of each kind and returns how many creates got status 503.
func countUnavailable(t testing.TB, up *testkit.Up) (unavailable int) {
	clients, err := kubernetes.NewForConfig(up.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for path, manifest := range readyKinds {
		var status int
		result := clients.RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(manifest)).MaxRetries(0).Do(context.Background()).StatusCode(&status)
		if status == http.StatusServiceUnavailable {
			unavailable++
			fmt.Printf("create at %s: %v\n", path, result.Error())
		} else if err := result.Error(); err != nil {
			t.Errorf("create at %s: %v", path, err)
		}
	}
	return unavailable
}
