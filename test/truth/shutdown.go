package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	shutdownTasks  = 200
	shutdownRound  = 50 // tasks that run at the same time
	shutdownRobots = 5
	// shutdownPause is the time between the signals to two processes, so that tasks end before the
	// signal to their shim.
	shutdownPause = 2 * time.Millisecond
)

// shutdownScripts are the ways in which tasks end at SIGTERM.
var shutdownScripts = []string{
	"exec sleep 600",
	"trap 'exit 143' TERM; while :; do sleep 0.05; done", // as a JVM
}

// shutdownOrders are the signals of a shutdown, each sent to all processes. systemd stops them before.
var shutdownOrders = [][]syscall.Signal{
	{syscall.SIGTERM},
	{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGCONT},
}

// runShutdownBlamed signals the agents of all robots, the shims and the tasks at the same time, as a
// shutdown does, and counts the tasks that were blamed for it.
func runShutdownBlamed(t testing.TB, figures map[string]float64) {
	s := startSystem(t, shutdownRobots)
	tasks, blamed := countTries(shutdownTasks), 0
	for round, left := 0, tasks; left > 0; round++ {
		n := min(left, shutdownRound)
		left -= n
		job := s.newJob(fmt.Sprintf("shutdown-%d", round), int32(n), shutdownScripts[round%len(shutdownScripts)])
		s.createObject(job)
		s.awaitTasks(job, n, "they run", func(task *v1alpha1.Task) bool { return task.Status.State == "running" })
		s.shutDownRobots(shutdownOrders[round/len(shutdownScripts)%len(shutdownOrders)])
		s.awaitTasks(job, n, "the robots have reported their ends", hasFirstEnd)
		for _, task := range s.listTasks(job) {
			if isBlamed(&task) {
				blamed++
				t.Logf("round %d: %s: %+v", round, task.Name, task.Status.Attempts[0])
			}
		}
		s.deleteJob(job)
	}
	figures["shutdown_blamed"] = float64(blamed)
	if blamed > 0 {
		t.Errorf("%d of %d tasks were blamed for the shutdown of their robot", blamed, tasks)
	}
}

// shutDownRobots signals all processes of the robots, tasks before their shims and these before the
// agents, which is the worst order. `up` starts the agents again.
func (s *system) shutDownRobots(signals []syscall.Signal) {
	pids := proc.ListDescendants(s.PID())
	slices.Reverse(pids)
	for _, signal := range signals {
		for _, pid := range pids {
			_ = syscall.Kill(pid, signal) // it may have exited
			time.Sleep(shutdownPause)
		}
	}
}

func (s *system) listTasks(job *v1alpha1.Job) []v1alpha1.Task {
	var all v1alpha1.TaskList
	if err := s.List(context.Background(), &all, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelJob: job.Name}); err != nil {
		s.t.Fatalf("list the tasks of %s: %v", job.Name, err)
	}
	return all.Items
}

// awaitTasks waits until all n tasks of a job are as required.
func (s *system) awaitTasks(job *v1alpha1.Job, n int, what string, is func(*v1alpha1.Task) bool) {
	testkit.EventuallyNoError(s.t, progressTimeout, job.Name+": "+what, func() error {
		met := 0
		for _, task := range s.listTasks(job) {
			if is(&task) {
				met++
			}
		}
		if met < n {
			return fmt.Errorf("only %d of %d", met, n)
		}
		return nil
	})
}

func hasFirstEnd(task *v1alpha1.Task) bool {
	return len(task.Status.Attempts) > 0 && task.Status.Attempts[0].Reason != ""
}

// isBlamed reports whether a task that was interrupted counts as failed.
func isBlamed(task *v1alpha1.Task) bool {
	first := task.Status.Attempts[0]
	return !wire.IsWithoutFault(first.Reason) || len(task.Status.FailedRobots) > 0 || task.Status.State == "failed"
}
