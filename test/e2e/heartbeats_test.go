package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// sliceOf returns the slice that the status of a robot names, or nil.
func (s *system) sliceOf(robot string) *v1alpha1.HeartbeatSlice {
	s.t.Helper()
	slice := &v1alpha1.HeartbeatSlice{}
	err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: s.robot(robot).Status.HeartbeatSlice}, slice)
	if err != nil {
		return nil
	}
	return slice
}

// lastHeartbeat returns the last heartbeat of a robot by its slice and its status, or nil.
func (s *system) lastHeartbeat(robot string) *metav1.MicroTime {
	s.t.Helper()
	slice := s.sliceOf(robot)
	return s.robot(robot).LastHeartbeat(slice)
}

// TestRobot_HeartbeatsAreWrittenInSlices has two robots that share a slice. While their heartbeats
// advance there, nothing is written to the Robots. It also holds after the server was killed.
func TestRobot_HeartbeatsAreWrittenInSlices(t *testing.T) {
	t.Parallel()
	const offlineAfter = 30 * time.Second
	s := start(t, "--robots", "0", "--without", "node", "--offline-after", offlineAfter.String())
	robots := []string{"r1", "r2"}
	for _, r := range robots {
		s.robotWith(r, nil)
		agent(t, s, r, "--heartbeat", "1s")
		s.awaitRobot(r, "Online", 30*time.Second)
	}
	awaitEntries := func() (name string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, "both robots are in one slice", func() bool {
			slice := s.sliceOf("r1")
			return slice.FindHeartbeat(s.robot("r1")) != nil && slice.FindHeartbeat(s.robot("r2")) != nil
		})
		return s.robot("r1").Status.HeartbeatSlice
	}
	first := awaitEntries()
	t.Run("heartbeats cost no writes of Robots", func(t *testing.T) { s.in(t).heartbeatsSpareRobots(robots, offlineAfter) })
	t.Run("get shows the heartbeat in the slice", func(t *testing.T) {
		out, err := s.RunProgram("k8s4r", "get", "robots")
		if err != nil || !strings.Contains(out, "LASTHEARTBEAT") {
			t.Fatalf("%v: %s", err, out)
		}
	})
	t.Run("a robot stays in its slice when the server is killed", func(t *testing.T) {
		s := s.in(t)
		s.Kill()
		s.Start()
		last := s.lastHeartbeat("r1")
		testkit.Eventually(t, time.Minute, "heartbeats are written again", func() bool { return s.lastHeartbeat("r1").After(last.Time) })
		if name := s.robot("r1").Status.HeartbeatSlice; name != first {
			t.Errorf("it is in %s instead of %s", name, first)
		}
		s.awaitRobot("r1", "Online", time.Minute)
	})
	t.Run("robots that are deleted leave it", func(t *testing.T) {
		s := s.in(t)
		slice := s.sliceOf("r1")
		for _, r := range robots {
			s.delete(s.robot(r))
		}
		testkit.EventuallyNoError(t, time.Minute, "neither is in a slice", func() error {
			err := s.Get(t.Context(), client.ObjectKeyFromObject(slice), slice)
			if apierrors.IsNotFound(err) {
				return nil
			}
			for _, h := range slice.Heartbeats { // they may have registered again
				r := &v1alpha1.Robot{}
				if err := s.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: h.Robot}, r); err != nil || r.UID != h.UID {
					return fmt.Errorf("there is an entry of %s %s", h.Robot, h.UID)
				}
			}
			return err
		})
	})
}

// heartbeatsSpareRobots waits for several versions of the slice, in which the Robots are not written.
func (s *system) heartbeatsSpareRobots(robots []string, offlineAfter time.Duration) {
	s.t.Helper()
	settled := map[string]string{}
	testkit.Eventually(s.t, time.Minute, "the Robots are not written between two versions of the slice", func() bool {
		before := s.sliceOf(robots[0]).ResourceVersion
		for _, r := range robots {
			settled[r] = s.robot(r).ResourceVersion
		}
		testkit.Eventually(s.t, offlineAfter, "the slice is written", func() bool { return s.sliceOf(robots[0]).ResourceVersion != before })
		return s.robot(robots[0]).ResourceVersion == settled[robots[0]] && s.robot(robots[1]).ResourceVersion == settled[robots[1]]
	})
	for range 4 {
		last := map[string]*metav1.MicroTime{}
		for _, r := range robots {
			last[r] = s.lastHeartbeat(r)
		}
		testkit.Eventually(s.t, offlineAfter/3, "all heartbeats advance", func() bool {
			return s.lastHeartbeat(robots[0]).After(last[robots[0]].Time) && s.lastHeartbeat(robots[1]).After(last[robots[1]].Time)
		})
	}
	for _, r := range robots {
		if is := s.robot(r); is.ResourceVersion != settled[r] {
			s.t.Errorf("%s was written: %+v", r, is.Status)
		}
	}
}
