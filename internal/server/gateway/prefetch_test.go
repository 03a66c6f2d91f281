package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestPrefetchDue(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		change func(w *robotState, r *robotv1.Robot)
		want   bool
	}{
		"a new order":        {func(*robotState, *robotv1.Robot) {}, true},
		"no order":           {func(_ *robotState, r *robotv1.Robot) { r.Status.PrefetchOrder = nil }, false},
		"an agent of before": {func(_ *robotState, r *robotv1.Robot) { r.Status.Agent.Prefetches = false }, false},
		"no message yet":     {func(w *robotState, _ *robotv1.Robot) { w.lastSeen = time.Time{} }, false},
		"disconnected":       {func(w *robotState, _ *robotv1.Robot) { w.disconnectReason = robotv1.ReasonLastWill }, false},
		"not approved":       {func(_ *robotState, r *robotv1.Robot) { r.Status.Phase = "Pending" }, false},
		"revoked":            {func(_ *robotState, r *robotv1.Robot) { r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true} }, false},
		"reported": {func(_ *robotState, r *robotv1.Robot) {
			r.Status.Prefetch = []robotv1.RobotPrefetch{{ID: "x", Attempt: 2}}
		}, false},
		"an earlier attempt reported": {func(_ *robotState, r *robotv1.Robot) {
			r.Status.Prefetch = []robotv1.RobotPrefetch{{ID: "x", Attempt: 1}}
		}, true},
		"sent just now": {func(w *robotState, _ *robotv1.Robot) { w.sentPrefetch, w.sentPrefetchAt = "x", now.Add(-time.Second) }, false},
		"sent a while ago": {func(w *robotState, _ *robotv1.Robot) {
			w.sentPrefetch, w.sentPrefetchAt = "x", now.Add(-prefetchRepeat)
		}, true},
		"another one sent just now": {func(w *robotState, _ *robotv1.Robot) { w.sentPrefetch, w.sentPrefetchAt = "y", now }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &robotv1.Robot{Status: robotv1.RobotStatus{
				Phase: "Online", Agent: &robotv1.AgentInfo{Prefetches: true}, PrefetchOrder: &robotv1.RobotPrefetchOrder{ID: "x", Attempt: 2},
			}}
			w := &robotState{lastSeen: now}
			test.change(w, r)
			if got := w.prefetchDue(now, r) != nil; got != test.want {
				t.Errorf("due %t, want %t", got, test.want)
			}
		})
	}
}

func TestNewPrefetchOrder(t *testing.T) {
	artifact := func(source, sum string) robotv1.Artifact {
		a := robotv1.Artifact{GetterSource: source}
		if sum != "" {
			a.GetterOptions = map[string]string{"checksum": sum}
		}
		return a
	}
	task := func(image string, artifacts ...robotv1.Artifact) robotv1.TaskDefinition {
		t := robotv1.TaskDefinition{Artifacts: artifacts}
		if image != "" {
			t.Config.DockerConfig = &robotv1.DockerConfig{Image: image}
		}
		return t
	}
	content := &jobrevision.JobContent{TaskGroups: []jobrevision.GroupContent{
		{
			Name:      "main",
			InitTasks: []robotv1.TaskDefinition{task("init:1", artifact("https://files.example/a", "sha256:AA"))},
			Tasks: []robotv1.TaskDefinition{
				task("app:1", artifact("https://mirror.example/a", "sha256:aa"), artifact("https://files.example/none", ""), artifact("https://u:p@files.example/b", "sha256:bb")),
				task("app:1", artifact("https://files.example/c", "sha512:cc")),
			},
		},
		{Name: "other", Tasks: []robotv1.TaskDefinition{task("other:1")}},
	}}
	o := newPrefetchOrder(&robotv1.RobotPrefetchOrder{ID: "x", Attempt: 1, Namespace: "n", Groups: []string{"main", "missing"}, BytesPerSecond: 5}, content)
	want := []wire.PrefetchArtifact{{Source: "https://files.example/a", Checksum: "sha256:AA"}, {Source: "https://files.example/c", Checksum: "sha512:cc"}}
	if !slices.Equal(o.Artifacts, want) || !slices.Equal(o.Images, []string{"init:1", "app:1"}) || o.Namespace != "n" || o.BytesPerSecond != 5 {
		t.Errorf("order %+v", o)
	}
}

// Whatever a Job contains, the robot accepts the order.
func TestNewPrefetchOrder_StaysWithinLimits(t *testing.T) {
	var g jobrevision.GroupContent
	for i := range 200 {
		d := &robotv1.DockerConfig{Image: strings.Repeat("i", 100+i)}
		g.Tasks = append(g.Tasks, robotv1.TaskDefinition{Config: robotv1.TaskConfig{DockerConfig: d}})
	}
	last := robotv1.Artifact{GetterSource: "https://files.example/a", GetterOptions: map[string]string{"checksum": "sha256:aa"}}
	g.Tasks = append(g.Tasks, robotv1.TaskDefinition{Artifacts: []robotv1.Artifact{last}})
	content := &jobrevision.JobContent{TaskGroups: []jobrevision.GroupContent{g}}
	o := newPrefetchOrder(&robotv1.RobotPrefetchOrder{ID: "x", Attempt: 1, Groups: []string{""}}, content)
	if !o.IsWithinLimits() || len(o.Images) != wire.MaxPrefetchImages || len(o.Artifacts) != 1 {
		t.Errorf("%d images and %d artifacts, within limits %t", len(o.Images), len(o.Artifacts), o.IsWithinLimits())
	}
}

// The time of a report is when its state was first received.
func TestSetPrefetch(t *testing.T) {
	s, first := &robotv1.RobotStatus{}, time.Unix(1_700_000_000, 0)
	setPrefetch(s, []wire.PrefetchReport{{ID: "x", Attempt: 1, State: wire.PrefetchFetching}}, first)
	setPrefetch(s, []wire.PrefetchReport{{ID: "x", Attempt: 1, State: wire.PrefetchFetching}}, first.Add(time.Minute))
	if p := s.Prefetch[0]; !p.At.Time.Equal(first) {
		t.Errorf("repeated: at %v", p.At)
	}
	setPrefetch(s, []wire.PrefetchReport{{ID: "x", Attempt: 1, State: wire.PrefetchDone, Bytes: 7}}, first.Add(time.Hour))
	if p := s.Prefetch[0]; !p.At.Time.Equal(first.Add(time.Hour)) || p.State != robotv1.PrefetchDone || p.Bytes != 7 {
		t.Errorf("done: %+v", p)
	}
	if setPrefetch(s, nil, first); len(s.Prefetch) != 0 {
		t.Errorf("an agent that was restarted reports nothing, the status has %+v", s.Prefetch)
	}
}
