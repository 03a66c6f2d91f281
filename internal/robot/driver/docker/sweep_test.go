package docker

import (
	"encoding/json"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"

	"k8s4r.io/k8s4r/internal/robot/driver"
)

// fakeEngine has containers of one attempt, and removes them.
type fakeEngine struct {
	mu         sync.Mutex
	containers map[string]map[string]string // the labels by ID
}

// serve answers on a socket until the test ends.
func (e *fakeEngine) serve(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: e}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch name := path.Base(r.URL.Path); {
	case r.Method == http.MethodDelete:
		delete(e.containers, name)
		w.WriteHeader(http.StatusNoContent)
	case name == "json":
		var all []container.Summary
		for id, labels := range e.containers {
			all = append(all, container.Summary{ID: id, Labels: labels})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all)
	default: // a ping
		w.Header().Set("Api-Version", "1.44")
	}
}

// left returns the IDs of the containers, sorted.
func (e *fakeEngine) left() (ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.containers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// The engine is down when a run is cleaned up after a reboot. It is up again after the next run has begun.
func TestSweep_IsRetriedForItsRunAlone(t *testing.T) {
	d := &Driver{Socket: filepath.Join(t.TempDir(), "engine")}
	run := func(n int64) driver.Attempt { return driver.Attempt{UID: "t1", Number: 1, Run: n, Robot: "r1"} }
	_ = d.Sweep(run(2)) // root does not wait for an engine that is not there
	if len(d.unswept) != 1 {
		t.Fatalf("%d runs are to be swept later, want one", len(d.unswept))
	}
	earlier := containerLabels(run(0))
	delete(earlier, labelRun)
	e := &fakeEngine{containers: map[string]map[string]string{
		"earlier-version": earlier, "run-1": containerLabels(run(1)), "run-2": containerLabels(run(2)), "run-3": containerLabels(run(3)),
	}}
	e.serve(t, d.Socket)
	d.retrySweep()
	if got := e.left(); !slices.Equal(got, []string{"run-3"}) || len(d.unswept) > 0 {
		t.Errorf("containers %q are left, and %d runs to be swept; want the run that has begun since, and none", got, len(d.unswept))
	}
}
