package main

import (
	"maps"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// operator is a program that makes RayClusters ready.
type operator func(s *bench) *testkit.Process

// ourManager runs the controller of RayClusters in a process of its own, to measure its CPU time and
// memory.
func ourManager(s *bench) *testkit.Process {
	return testkit.NewProcess(s, testkit.BinaryPath(s, "k8s4r-manager"), "--kubeconfig", s.up.Kubeconfig, "--leader-elect=false",
		"--controllers=raycluster", "--metrics-bind-address=0", "--health-probe-bind-address=0")
}

// start starts an operator, and waits until it works.
func (s *bench) start(of operator, namespace string) *testkit.Process {
	p := of(s)
	p.Start()
	s.createClusters(namespace, []string{"warm"}, 1)
	return p
}

// measureRun measures n clusters of one size, with a new process of the operator.
func (s *bench) measureRun(of operator, namespace string, clusters, workers int) run {
	s.createNamespace(namespace)
	pods := s.markReady(namespace)
	defer pods.stop()
	process := s.start(of, namespace)
	defer process.Stop()
	s.awaitIdle(process)

	r := run{name: namespace, clusters: clusters, workers: workers}
	had, cpu, start := s.countWrites(), process.CPU(), time.Now()
	all := s.createClusters(namespace, clusterNames(clusters), workers)
	r.allReady, r.cpu = all.Sub(start), process.CPU()-cpu
	r.allPods = pods.lastReady().Sub(start)
	s.awaitIdle(process)
	r.rssMB = float64(process.RSS()) / 1e6
	r.writes = subtractCounts(had, s.countWrites())
	s.deleteNamespace(namespace)
	return r
}

// awaitIdle waits until the operator is idle and writes nothing more, because late writes count, too.
func (s *bench) awaitIdle(process *testkit.Process) {
	for written := s.countWrites(); ; {
		before := process.CPU()
		time.Sleep(2 * time.Second)
		now := s.countWrites()
		if process.CPU()-before < 100*time.Millisecond && maps.Equal(written, now) {
			return
		}
		written = now
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
