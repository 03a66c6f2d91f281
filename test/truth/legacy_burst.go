package main

import (
	"fmt"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
)

const (
	burstTries = 5
	burstTasks = 30
	burstTime  = 100 * time.Millisecond
)

// runLegacyBurst creates jobs of many tasks for two legacy agents, and measures the share of jobs
// that complete. The agents stop reading when more dispatches arrive than their library holds.
func runLegacyBurst(t testing.TB, figures map[string]float64) {
	s := startSystemBy(t, testkit.StartLegacyUp, "--robots", "0")
	for _, id := range []string{"legacy-1", "legacy-2"} {
		agent, err := legacyagent.Start(legacyagent.Config{RobotID: id, Broker: s.MQTTURL, WaitsInHandler: true, NoTasksAfterReconnect: true, Run: burstTime})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(agent.Stop)
	}
	s.awaitOnline(2)
	tries, completed := countTries(burstTries), 0
	for i := range tries {
		job := s.newJob(fmt.Sprintf("burst-%d", i), burstTasks, "exit 0") // the agents only simulate it
		s.createObject(job)
		if s.completesInTime(job.Name) {
			completed++
		}
		s.deleteJob(job)
	}
	figures["legacy_burst_30_completed"] = float64(completed) / float64(tries)
	if completed < tries {
		t.Errorf("%d of %d jobs of %d tasks did not complete", tries-completed, tries, burstTasks)
	}
}

// completesInTime waits until a job completes. If it does not, its state is logged.
func (s *system) completesInTime(name string) bool {
	for deadline := time.Now().Add(progressTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if lifecycle.JobState(s.getJob(name).Status.State) == lifecycle.JobCompleted {
			return true
		}
	}
	j := s.getJob(name)
	s.t.Logf("%s is %q: %+v", name, j.Status.State, j.Status.TaskCounts)
	return false
}
