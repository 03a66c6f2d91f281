package runner

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// collectedArtifacts is a cache that has nothing, and counts what it is given.
type collectedArtifacts struct{ paths []string }

func (c *collectedArtifacts) Lookup(artifact.Content) (string, bool) { return "", false }
func (c *collectedArtifacts) Collect(_ artifact.Content, path string) {
	c.paths = append(c.paths, path)
}

// collectTest is a runner with a cache, whose task t1 has an artifact and was dispatched.
type collectTest struct {
	*restartTest
	cache *collectedArtifacts
}

func newCollectTest(t *testing.T, change ...func(*wire.Task)) *collectTest {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("weights")) }))
	t.Cleanup(files.Close)
	withArtifact := func(task *wire.Task) {
		sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("weights")))
		task.Spec.Artifacts = []wire.Artifact{{GetterSource: files.URL + "/model", GetterOptions: map[string]string{"checksum": sum}}}
	}
	x := &collectTest{newRestartTest(t, append(change, withArtifact)...), &collectedArtifacts{}}
	x.artifacts, x.Runner.artifacts = x.cache, x.cache
	x.dispatch(1)
	return x
}

// fetch downloads the artifact, as the set-up does, and returns the hidden directory with the source.
func (x *collectTest) fetch() (stage string) {
	x.t.Helper()
	request := artifactRequests(x.task.Spec.Artifacts)[0]
	request.Keep = true
	dir := x.dirs.WorkDir("t1", 1)
	must(x.t, artifact.Fetch(context.Background(), request, artifact.Limits{}, dir))
	found, err := filepath.Glob(filepath.Join(dir, ".k8s4r-artifact-*"))
	if err != nil || len(found) != 1 {
		x.t.Fatalf("hidden directories %v, %v", found, err)
	}
	return found[0]
}

// adopt replaces the agent while the task runs.
func (x *collectTest) adopt() {
	x.t.Helper()
	x.left, x.alive = shim.State{Started: &shim.Started{At: x.wall}}, x.shims.last
	x.restartAgent()
}

func (x *collectTest) requireCollected(what string, want int) {
	x.t.Helper()
	if got := len(x.cache.paths); got != want {
		x.t.Errorf("%s: %d sources were given to the cache, want %d", what, got, want)
	}
}

// What is there after the start was journaled was put there by the task.
func TestCollectArtifacts_OncePerStart(t *testing.T) {
	x := newCollectTest(t, restarting(2, time.Second))
	x.fetch()
	x.begin()
	x.requireCollected("after the start", 1)
	x.fetch()
	for range 2 {
		x.adopt()
	}
	x.requireCollected("by the next agents", 1)
}

func TestCollectArtifacts_AfterCrashBeforeTheJournal(t *testing.T) {
	x := newCollectTest(t)
	x.fetch()
	x.adopt()
	x.requireCollected("by the next agent", 1)
}

// A run whose directory was cleared downloads the artifact again, also if an agent between has adopted the
// run before.
func TestCollectArtifacts_OfNextRun(t *testing.T) {
	x := newCollectTest(t, restarting(2, time.Second))
	x.begin()
	x.adopt()
	x.end(shim.Exit{Code: 137, StopReason: wire.ReasonDiskQuotaExceeded})
	x.pass(time.Minute)
	x.requireStarts("after the restart", 1)
	x.fetch()
	x.begin()
	x.requireCollected("in the second run", 1)
}

// An agent that waited for a pipe of a task would never get into contact.
func TestRecover_DoesNotWaitForPipeOfTask(t *testing.T) {
	x := newCollectTest(t)
	stage, done := x.fetch(), make(chan struct{})
	must(t, os.RemoveAll(stage))
	must(t, syscall.Mkfifo(stage, 0o600))
	go func() { defer close(done); x.adopt() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the agent waits for a pipe of the task")
	}
	x.requireCollected("by the next agent", 0)
}
