package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// newSlice is a slice with so many robots.
func newSlice(namespace string, robots int) *v1alpha1.HeartbeatSlice {
	s := &v1alpha1.HeartbeatSlice{
		ObjectMeta:           metav1.ObjectMeta{Namespace: namespace, Name: "heartbeats-0"},
		AcknowledgmentPeriod: metav1.Duration{Duration: time.Minute},
	}
	for i := range robots {
		name := fmt.Sprintf("r-%04d", i)
		s.Heartbeats = append(s.Heartbeats, v1alpha1.RobotHeartbeat{Robot: name, UID: types.UID("uid-" + name), Time: metav1.NowMicro()})
	}
	return s
}

// TestHeartbeatSlices_OnlyTheServerWrites has everyone with a role of K8s4r. A tenant who could write a
// slice could keep a lost robot Online, or let a task run twice.
func TestHeartbeatSlices_OnlyTheServerWrites(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).namespace(t, "heartbeat-rights")
	s.bindEverywhere("server", "k8s4r-server")
	s.bindEverywhere("manager", "k8s4r-manager-robots")
	s.bindEverywhere("console", "k8s4r-console")
	for _, user := range []string{"view", "edit", "admin"} {
		s.bind(user+"s", user, "k8s4r-"+user)
	}
	s.bind("edits-too", "editor", "edit") // the aggregated role of Kubernetes
	stored := newSlice(s.name, 1)
	stored.Name = "heartbeats-1"
	s.must(s.Create(t.Context(), stored))
	writes := map[string]func(client.Client) error{
		"create": func(c client.Client) error { return c.Create(t.Context(), newSlice(s.name, 1), client.DryRunAll) },
		"update": func(c client.Client) error { return c.Update(t.Context(), stored.DeepCopy(), client.DryRunAll) },
		"delete": func(c client.Client) error { return c.Delete(t.Context(), stored.DeepCopy(), client.DryRunAll) },
		"delete all": func(c client.Client) error {
			return c.DeleteAllOf(t.Context(), &v1alpha1.HeartbeatSlice{}, client.InNamespace(s.name), client.DryRunAll)
		},
	}
	server := s.as("server")
	testkit.EventuallyNoError(t, waitTimeout, "the roles are known", func() error { return writes["create"](server) })
	for _, verb := range []string{"update", "delete"} {
		if err := writes[verb](server); err != nil {
			t.Errorf("the server may not %s: %v", verb, err)
		}
	}
	for _, user := range []string{"manager", "console", "view", "edit", "admin", "editor"} {
		c := s.as(user)
		for verb, do := range writes {
			if err := do(c); !apierrors.IsForbidden(err) {
				t.Errorf("%s may %s: %v", user, verb, err)
			}
		}
	}
	for _, user := range []string{"manager", "console", "view"} {
		testkit.EventuallyNoError(t, waitTimeout, user+" may read", func() error {
			return s.as(user).List(t.Context(), &v1alpha1.HeartbeatSliceList{}, client.InNamespace(s.name))
		})
	}
}

func TestHeartbeatSlices_AreBounded(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly).namespace(t, "heartbeat-bounds")
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.HeartbeatSlice)
		want   string
	}{
		{"a full slice", func(*v1alpha1.HeartbeatSlice) {}, ""},
		{"one robot more", func(h *v1alpha1.HeartbeatSlice) { h.Heartbeats = append(h.Heartbeats, h.Heartbeats[0]) }, "heartbeats: Too many"},
		{"a long name", func(h *v1alpha1.HeartbeatSlice) { h.Heartbeats[0].Robot = strings.Repeat("r", 64) }, "heartbeats[0].robot: Too long"},
		{"no name", func(h *v1alpha1.HeartbeatSlice) { h.Heartbeats[0].Robot = "" }, "heartbeats[0].robot"},
		{"a long UID", func(h *v1alpha1.HeartbeatSlice) { h.Heartbeats[0].UID = types.UID(strings.Repeat("u", 65)) }, "heartbeats[0].uid: Too long"},
	} {
		slice := newSlice(s.name, v1alpha1.MaxSliceRobots)
		c.change(slice)
		err := s.Create(t.Context(), slice, client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestRobot_IsOnlineByItsSlice writes the heartbeats of a robot to its slice only, as the server does,
// until its status is older than offlineAfter, and then no more.
func TestRobot_IsOnlineByItsSlice(t *testing.T) {
	t.Parallel()
	const offlineAfter = 4 * time.Second
	s := startApart(t, apartServer, manager.Config{OfflineAfter: offlineAfter}, "heartbeats").namespace(t, "heartbeats")
	s.robots("sliced")
	var r v1alpha1.Robot
	s.must(s.Get(s.Context(), s.key("sliced"), &r))
	slice := newSlice(s.name, 1)
	slice.Heartbeats[0].Robot, slice.Heartbeats[0].UID = r.Name, r.UID
	s.must(s.Create(s.Context(), slice))
	s.updateRobotStatus("sliced", func(st *v1alpha1.RobotStatus) {
		st.HeartbeatSlice, st.AcknowledgedUntil = slice.Name, v1alpha1.AcknowledgedBySlice(time.Now())
	})
	began := time.Now()
	for beat := time.NewTicker(offlineAfter / 10); time.Since(began) < 3*offlineAfter; <-beat.C {
		slice.Heartbeats[0].Time = metav1.NowMicro()
		s.must(s.Update(s.Context(), slice))
		s.must(s.Get(s.Context(), s.key("sliced"), &r))
		if phase := lifecycle.ParseRobotPhase(r.Status.Phase); phase != lifecycle.RobotOnline {
			t.Fatalf("after %s the robot is %s", time.Since(began), phase)
		}
	}
	s.awaitPhase("sliced", lifecycle.RobotOffline)
}
