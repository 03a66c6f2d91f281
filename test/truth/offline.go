package main

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	offlineTries = 10
	// offlineAfterConnect is how long a robot lives after it has connected.
	offlineAfterConnect = time.Second
	// offlineKnownMax bounds the time from its death until it is no longer online.
	offlineKnownMax = 10 * time.Second
)

// runOfflineKnown kills an agent soon after it has connected, and measures the longest time until
// its robot is no longer online.
func runOfflineKnown(t testing.TB, figures map[string]float64) {
	s := startSystemBy(t, testkit.StartUp, "--robots", "0")
	agent, longest := s.newAgent("short-lived"), time.Duration(0)
	for i := range countTries(offlineTries) {
		agent.Start()
		testkit.EventuallyNoError(t, progressTimeout, "the robot is online and connected", s.expectConnected)
		time.Sleep(offlineAfterConnect)
		agent.Kill()
		killed := time.Now()
		testkit.Eventually(t, progressTimeout, "the robot is not online", func() bool {
			return lifecycle.RobotPhase(s.getRobot("short-lived").Status.Phase) != lifecycle.RobotOnline
		})
		took := time.Since(killed)
		t.Logf("try %d: known after %s", i, took.Round(time.Millisecond))
		longest = max(longest, took)
	}
	figures["offline_known_s"] = longest.Seconds()
	if longest > offlineKnownMax {
		t.Errorf("a robot whose agent was killed was online for %s", longest)
	}
}

// expectConnected returns an error unless the robot is online over a connection of now.
func (s *system) expectConnected() error {
	for _, r := range s.listRobots() {
		if lifecycle.RobotPhase(r.Status.Phase) == lifecycle.RobotOnline && meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionConnected) {
			return nil
		}
	}
	return fmt.Errorf("it is not")
}
