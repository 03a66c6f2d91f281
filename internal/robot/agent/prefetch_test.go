package agent

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// lastPrefetch returns the last report about an order, or the zero value.
func (s *fakeServer) lastPrefetch(id string) (last wire.PrefetchReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.registers[len(s.registers)-1].Prefetch {
		if r.ID == id {
			last = r
		}
	}
	return last
}

// The server orders an artifact in advance. The task that needs it starts after the server of the file has
// stopped.
func TestPrefetch_TaskStartsWithoutDownload(t *testing.T) {
	content := tarWith(t, "model", "weights")
	s, dir, files := newFakeServer(t), t.TempDir(), serveArtifact(t, content)
	config := s.config(dir)
	config.CacheQuota = 1 << 20
	startAgent(t, config)
	s.awaitRegistered(1)
	order := &wire.PrefetchOrder{ID: "rollout", Attempt: 1, Namespace: "default", Artifacts: []wire.PrefetchArtifact{
		{Source: files.URL + "/model.tar", Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256(content))},
	}}
	for range 2 { // the server repeats it
		s.publish(wire.KindResponse, wire.Response{Success: true, RobotID: robot, Prefetch: order}, false)
	}
	waitUntil(t, "the agent to report the end", func() bool { return s.lastPrefetch("rollout").State == wire.PrefetchDone })
	if r := s.lastPrefetch("rollout"); r.Bytes != int64(len(content)) || files.requests.Load() != 1 {
		t.Errorf("%d downloads, report %+v", files.requests.Load(), r)
	}
	files.Close()
	s.dispatch(shell("t1", "cat model", withArtifact(files.URL+"/model.tar", content)), 1)
	s.awaitEnd("t1", 1)
	if out := output(t, dir, "t1", 1, record.Stdout); out != "weights" {
		t.Errorf("the task has read %q", out)
	}
}

// A robot without a cache reports why it has fetched nothing.
func TestPrefetch_FailsWithoutCache(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	order := &wire.PrefetchOrder{ID: "rollout", Attempt: 1, Namespace: "default", Artifacts: []wire.PrefetchArtifact{{Source: "http://files.invalid/a", Checksum: "sha256:0"}}}
	s.publish(wire.KindResponse, wire.Response{Success: true, RobotID: robot, Prefetch: order}, false)
	waitUntil(t, "the agent to report the end", func() bool { return s.lastPrefetch("rollout").State == wire.PrefetchFailed })
	if r := s.lastPrefetch("rollout"); r.Message != "this robot has no cache of artifacts; set cacheQuota of its agent" {
		t.Errorf("report %+v", r)
	}
}
