package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// survivors says which attempt lives on when the robot of attempt 1 is back, and
// attempt 2 runs on one that the job likes better.
var survivors = map[string]int32{
	v1alpha1.ReconcileKeepOriginal:    1,
	v1alpha1.ReconcileKeepReplacement: 2,
	v1alpha1.ReconcileLongestRunning:  1,
	v1alpha1.ReconcileBestScore:       2,
}

// TestRobot_ReconnectsAfterANetworkPartition shows that a robot that goes offline does not keep
// its tasks forever. It is cut off with a task of each mode on it, another one
// takes their place, and it comes back.
func TestRobot_ReconnectsAfterANetworkPartition(t *testing.T) {
	s := start(t, "--robots", "0", "--offline-after", "6s")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	agent(t, s, "r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "1s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	hold := s.file("hold")
	s.hold(hold)
	runs := map[string]string{}
	for mode := range survivors {
		runs[mode] = s.file(mode)
		s.create(disconnects(mode, while(hold), runs[mode]))
	}
	for mode := range survivors {
		s.awaitTask(taskOf(mode), "running", 20*time.Second)
	}
	s.robotWith("r2", nil)
	agent(t, s, "r2", "--heartbeat", "1s")
	s.awaitRobot("r2", "Online", 20*time.Second)

	way.RefuseConnections()
	for mode := range survivors {
		s.awaitStarts(runs[mode], 2)
		task := s.awaitTask(taskOf(mode), "running", 30*time.Second)
		if task.Spec.TargetRobot != "r2" || task.Status.Attempt != 2 || len(task.Status.Attempts) != 2 {
			t.Errorf("%s: attempt %d on %s, with %d in its history", mode, task.Status.Attempt, task.Spec.TargetRobot, len(task.Status.Attempts))
		}
	}

	way.RestoreNetwork()
	for mode, counts := range survivors {
		s.awaitOneRun(taskOf(mode), counts)
	}
	os.Remove(hold)
	for mode, counts := range survivors {
		s.awaitJob(jobOfMode(mode), "completed", 30*time.Second)
		if got, want := slices.Sorted(maps.Keys(ends(runs[mode]))), []string{fmt.Sprint(counts)}; !slices.Equal(got, want) {
			t.Errorf("%s: attempts %v came to their end, want %v: %v", mode, got, want, linesOf(runs[mode]))
		}
	}
}

func jobOfMode(mode string) string { return strings.ReplaceAll(mode, "_", "-") }

func taskOf(mode string) string { return jobOfMode(mode) + "-main-0-work" }

// disconnects returns a job of one task that records its start and end in a file and prefers r2.
func disconnects(mode, wait, file string) *v1alpha1.Job {
	job := jobOf(jobOfMode(mode), 1, shell("work", "echo start $K8S4R_ATTEMPT >> "+file+"; "+wait+"; echo end $K8S4R_ATTEMPT >> "+file))
	job.Spec.Disconnect = &v1alpha1.Disconnect{LostAfter: span(time.Second), Reconcile: mode}
	job.Spec.TaskGroups[0].Placement = &v1alpha1.Placement{
		Affinity: []v1alpha1.AffinityTerm{{RobotLabels: map[string]string{"robot": "r2"}, Weight: 50}},
	}
	return job
}

func (s *system) awaitStarts(file string, n int) {
	s.t.Helper()
	testkit.Eventually(s.t, 30*time.Second, fmt.Sprintf("%d starts in %s", n, file), func() bool {
		return strings.Count(strings.Join(linesOf(file), " "), "start") == n
	})
}

// awaitOneRun blocks until one attempt of the task is running and all others are known to have
// ended.
func (s *system) awaitOneRun(name string, attempt int32) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 30*time.Second, fmt.Sprintf("attempt %d of %s is alone", attempt, name), func() error {
		task := s.task(name)
		if task.Status.State != "running" || task.Status.Attempt != attempt || task.Status.LostAttempt != 0 {
			return fmt.Errorf("it is %s with attempt %d, original %d", task.Status.State, task.Status.Attempt, task.Status.LostAttempt)
		}
		for _, a := range task.Status.Attempts {
			if ended := a.FinishedAt != nil; ended == (a.Attempt == attempt) {
				return fmt.Errorf("attempt %d on %s: %+v", a.Attempt, a.Robot, a)
			}
		}
		if at := task.Status.FindAttempt(attempt).Robot; task.Spec.TargetRobot != at {
			return fmt.Errorf("its spec names %s, and it runs on %s", task.Spec.TargetRobot, at)
		}
		return nil
	})
}

// ends returns the attempts that ended by themselves.
func ends(file string) map[string]bool {
	found := map[string]bool{}
	for _, line := range linesOf(file) {
		if n, ok := strings.CutPrefix(line, "end "); ok {
			found[n] = true
		}
	}
	return found
}
