package main

import (
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

// startManager runs the controller of RayClusters by itself, so that its CPU and its
// memory are its own, and waits until it works.
func (s *stand) startManager(namespace string) *testkit.Process {
	p := testkit.NewProcess(s, testkit.Binary(s, "k8s4r-manager"), "--kubeconfig", s.up.Kubeconfig, "--leader-elect=false",
		"--controllers=raycluster", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	p.Start()
	s.run(namespace, []string{"warm"}, 1)
	return p
}

// measure one number of clusters of one size, with a fresh controller.
func (s *stand) measure(namespace string, clusters, workers int) run {
	s.space(namespace)
	pods := s.markReady(namespace)
	defer pods.stop()
	manager := s.startManager(namespace)
	defer manager.Stop()

	r := run{clusters: clusters, workers: workers}
	had, cpu, start := s.writes(), manager.CPU(), time.Now()
	all := s.run(namespace, names(clusters), workers)
	r.allReady, r.cpu = all.Sub(start), manager.CPU()-cpu
	r.allPods = pods.last().Sub(start)
	s.settle(manager)
	r.rssMB = float64(manager.RSS()) / 1e6
	r.writes = since(had, s.writes())
	s.remove(namespace)
	return r
}

// settle waits until the controller has nothing more to do: what it still writes
// counts, too.
func (s *stand) settle(manager *testkit.Process) {
	for {
		before := manager.CPU()
		time.Sleep(time.Second)
		if manager.CPU()-before < 50*time.Millisecond {
			return
		}
	}
}

// writes of the controller are all but the bench's own and those that Kubernetes adds.
func (s *stand) writes() map[testkit.Write]int {
	all := testkit.Writes(s, s.up.RESTConfig())
	for w := range all {
		if !ofTheController(w) {
			delete(all, w)
		}
	}
	return all
}

func ofTheController(w testkit.Write) bool {
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

// since is what came on top.
func since(had, has map[testkit.Write]int) map[testkit.Write]int {
	more := map[testkit.Write]int{}
	for w, n := range has {
		if n > had[w] {
			more[w] = n - had[w]
		}
	}
	return more
}
