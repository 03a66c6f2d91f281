package main

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/testkit"
)

// startManager runs the controllers of flows in a process of their own, to measure their CPU time.
func startManager(t testing.TB, up *testkit.Up) *testkit.Process {
	c := testkit.NewClient(t, up.RESTConfig())
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "raw"}}
	if err := c.Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	p := testkit.NewProcess(t, testkit.BinaryPath(t, "k8s4r-manager"), "--kubeconfig", up.KubeconfigOf("k8s4r-manager"), "--leader-elect=false",
		"--controllers=jobflow,jobtemplate", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	p.Start()
	return p
}

// countWrites returns the number of writes of flows, their Jobs, templates and events that the API
// server has accepted, without those of this program that end Jobs.
func (s *bench) countWrites() int {
	sum := 0
	for w, n := range testkit.CountWrites(s, s.up.RESTConfig()) {
		if ofFlows(w) {
			sum += n
		}
	}
	return sum
}

func ofFlows(w testkit.WriteRequest) bool {
	switch w.Group {
	case "flow.volcano.sh":
		return w.Resource != "jobflows" || w.Subresource == "status" // users create flows
	case "batch.volcano.sh":
		return w.Subresource == ""
	}
	return w.Resource == "events"
}
