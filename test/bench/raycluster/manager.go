package main

import (
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// startManager runs the controller of RayClusters in a process of its own, to measure its CPU time and
// memory, and waits until it works.
func (s *bench) startManager(namespace string) *testkit.Process {
	p := testkit.NewProcess(s, testkit.BinaryPath(s, "k8s4r-manager"), "--kubeconfig", s.up.Kubeconfig, "--leader-elect=false",
		"--controllers=raycluster", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	p.Start()
	s.createClusters(namespace, []string{"warm"}, 1)
	return p
}

// measureRun measures n clusters of one size, with a new controller.
func (s *bench) measureRun(namespace string, clusters, workers int) run {
	s.createNamespace(namespace)
	pods := s.markReady(namespace)
	defer pods.stop()
	manager := s.startManager(namespace)
	defer manager.Stop()

	r := run{clusters: clusters, workers: workers}
	had, cpu, start := s.countWrites(), manager.CPU(), time.Now()
	all := s.createClusters(namespace, clusterNames(clusters), workers)
	r.allReady, r.cpu = all.Sub(start), manager.CPU()-cpu
	r.allPods = pods.lastReady().Sub(start)
	s.awaitIdle(manager)
	r.rssMB = float64(manager.RSS()) / 1e6
	r.writes = subtractCounts(had, s.countWrites())
	s.deleteNamespace(namespace)
	return r
}

// awaitIdle waits until the controller is idle, because late writes count, too.
func (s *bench) awaitIdle(manager *testkit.Process) {
	for {
		before := manager.CPU()
		time.Sleep(time.Second)
		if manager.CPU()-before < 50*time.Millisecond {
			return
		}
	}
}

// countWrites counts the writes of the controller: all except those of this program and of Kubernetes.
func (s *bench) countWrites() map[testkit.WriteRequest]int {
	all := testkit.CountWrites(s, s.up.RESTConfig())
	for w := range all {
		if !ofTheController(w) {
			delete(all, w)
		}
	}
	return all
}

func ofTheController(w testkit.WriteRequest) bool {
	switch w.Resource {
	case "rayclusters":
		return w.Verb != "POST" && w.Verb != "DELETECOLLECTION"
	case "pods":
		return w.Subresource == "" && w.Verb != "DELETECOLLECTION"
	case "endpointslices", "leases", "namespaces", "apiservices", "flowschemas", "prioritylevelconfigurations":
		return false
	}
	return true
}

// subtractCounts returns the difference of two counts.
func subtractCounts(had, has map[testkit.WriteRequest]int) map[testkit.WriteRequest]int {
	more := map[testkit.WriteRequest]int{}
	for w, n := range has {
		if n > had[w] {
			more[w] = n - had[w]
		}
	}
	return more
}
