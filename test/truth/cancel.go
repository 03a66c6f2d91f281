package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

const (
	cancelTries  = 200
	cancelRobots = 4
	cancelTasks  = 16
	// cancelWithin is the longest time between the creation of a job and its cancel.
	cancelWithin = time.Second
)

// cancelMarker is in the command line of each task's shell, and in the environment of its child.
const cancelMarker = "K8S4R_TRUTH_CANCEL=1"

// runCanceledWhileRunning cancels jobs that have just been created, by the API and by `job cancel
// --wait`, and counts those of which a process lives when they are reported as canceled.
func runCanceledWhileRunning(t testing.TB, figures map[string]float64) {
	s := startSystem(t, cancelRobots)
	tries, bad := countTries(cancelTries), 0
	for i := range tries {
		delay := cancelWithin * time.Duration(i) / time.Duration(tries)
		job := s.newJob(fmt.Sprintf("cancel-%d", i), cancelTasks, cancelMarker+" sleep 600; exit 1")
		s.createObject(job)
		time.Sleep(delay)
		s.cancelJob(job, i%2 == 0)
		if alive := countMarked(t); alive > 0 {
			bad++
			t.Logf("try %d, canceled %s after its creation: %d processes live", i, delay, alive)
			testkit.Eventually(t, progressTimeout, "they end", func() bool { return countMarked(t) == 0 })
		}
		s.deleteJob(job)
	}
	figures["canceled_while_running"] = float64(bad)
	if bad > 0 {
		t.Errorf("%d of %d jobs were reported as canceled while processes of their tasks lived", bad, tries)
	}
}

// cancelJob cancels a job and blocks until it is reported as canceled.
func (s *system) cancelJob(job *v1alpha1.Job, byCommand bool) {
	if byCommand {
		if out, err := s.RunProgram("k8s4r", "job", "cancel", "--wait", job.Name); err != nil {
			s.t.Fatalf("cancel %s: %v\n%s", job.Name, err, out)
		}
		return
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"desiredState":"canceled"}}`))
	if err := s.Patch(context.Background(), job, patch); err != nil {
		s.t.Fatalf("cancel %s: %v", job.Name, err)
	}
	deadline := time.Now().Add(3 * progressTimeout)
	for s.getJob(job.Name).Status.State != "canceled" {
		if time.Now().After(deadline) {
			s.t.Fatalf("job %s is not canceled: %+v", job.Name, s.getJob(job.Name).Status)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// countMarked counts the live processes of the tasks of all jobs of this case.
func countMarked(t testing.TB) (n int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatalf("list processes: %v", err)
	}
	for _, dir := range dirs {
		// Both are empty for a zombie. A process that has ended meanwhile has neither.
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		isShell := bytes.HasPrefix(line, []byte("/bin/sh\x00")) && bytes.Contains(line, []byte(cancelMarker))
		if isShell || bytes.Contains(env, []byte(cancelMarker)) {
			n++
		}
	}
	return n
}
