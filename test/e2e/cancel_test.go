package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// The legacy server left 32 of 40 such jobs running, with nothing runnable in them. make truth cancels
// 200.
func TestCancel_WhileRobotsAreTakingTasks(t *testing.T) {
	t.Parallel()
	const robots, jobs, atOnce = 16, 12, 4
	s := start(t, "--robots", "0")
	fleet := make([]*simrobot.Robot, robots)
	for i := range fleet {
		run := 200 * time.Millisecond
		if i%2 == 1 {
			run = time.Minute // no job is over before it is canceled
		}
		fleet[i] = s.simulateRobot(simrobot.Config{RobotID: fmt.Sprintf("sim-%d", i), Run: run})
	}
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range jobs {
		job := jobOf(fmt.Sprintf("taken-%d", i), 60, shell("work", "true"))
		s.create(job)
		all.Go(func() error { return s.cancelInTheMiddle(job.Name) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		name := fmt.Sprintf("taken-%d", i)
		s.awaitJob(name, "canceled", 30*time.Second)
		testkit.EventuallyNoError(t, 30*time.Second, "nothing is left of "+name, func() error {
			for _, task := range s.tasksOf(name) {
				if !lifecycle.TaskState(task.Status.State).IsTerminal() {
					return fmt.Errorf("%s is %q", task.Name, task.Status.State)
				}
			}
			return nil
		})
	}
	for i, robot := range fleet {
		testkit.Eventually(t, 10*time.Second, fmt.Sprintf("sim-%d has nothing left", i), func() bool { return len(robot.RunningTasks()) == 0 })
	}
}

// cancelInTheMiddle cancels a job while robots are starting its tasks.
func (s *system) cancelInTheMiddle(name string) error {
	testkit.Eventually(s.t, 60*time.Second, name+" has started", func() bool {
		for _, task := range s.tasksOf(name) {
			// A start may share the write of the end: then the task is never seen running.
			if state := lifecycle.TaskState(task.Status.State).OrPending(); state.IsActive() || state.IsTerminal() {
				return true
			}
		}
		return false
	})
	const tries = 20 // the job's status may be written more often than the command retries
	for try := 1; ; try++ {
		out, err := s.RunProgram("k8s4r", "job", "cancel", name)
		if err == nil {
			return nil
		}
		if try == tries || !strings.Contains(out, "try again") {
			return fmt.Errorf("cancel %s, try %d: %w\n%s", name, try, err, out)
		}
	}
}
