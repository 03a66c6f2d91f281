package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/testkit"
)

// arrayJob returns a Job with an array.
func arrayJob(name string, a v1alpha1.Array, task v1alpha1.TaskDefinition) *v1alpha1.Job {
	job := jobOf(name, 1, task)
	job.Spec.TaskGroups[0].Count, job.Spec.TaskGroups[0].Array = nil, &a
	return job
}

func (s *system) awaitCounts(job, what string, within time.Duration, holds func(v1alpha1.TaskCounts) bool) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, within, "job "+job+": "+what, func() error {
		j := &v1alpha1.Job{}
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: job}, j); err != nil {
			return err
		}
		if !holds(j.Status.TaskCounts) {
			return fmt.Errorf("it is %q: %+v", j.Status.State, j.Status.TaskCounts)
		}
		return nil
	})
}

// cli runs a command line and fails the test if it fails.
func (s *system) cli(args ...string) string {
	s.t.Helper()
	out, err := s.RunProgram("k8s4r", args...)
	if err != nil {
		s.t.Fatalf("k8s4r %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func TestArray_GivesEachIndexItsItem(t *testing.T) {
	t.Parallel()
	const size = 300
	s := start(t, "--robots", "3")
	trace := testkit.NewIndexTrace(t)
	work := shell("work", trace.WrapScript(`echo "index ${K8S4R_TASK_INDEX} has $K8S4R_TASK_ITEM"`))
	var items []string
	for i := range size {
		items = append(items, "item "+strconv.Itoa(i))
	}
	s.create(arrayJob("scan", v1alpha1.Array{Items: items, RangeSize: 20}, work))
	s.awaitJob("scan", "completed", 2*time.Minute)
	s.awaitCounts("scan", "counts indexes", 10*time.Second, func(c v1alpha1.TaskCounts) bool { return c.SucceededTasks == size && c.TotalTasks == size })
	trace.CheckIndexes(t, size)
	starts, _ := trace.CountRuns(t)
	if len(starts) != size {
		t.Errorf("%d runs, want %d", len(starts), size)
	}
	if tasks := s.tasksOf("scan"); len(tasks) != size/20 {
		t.Errorf("%d tasks for %d ranges", len(tasks), size/20)
	}
	testkit.EventuallyNoError(t, 20*time.Second, "the log of index 47", func() error {
		out, err := s.RunProgram("k8s4r", "logs", "--job", "scan", "--index", "47", "--stdout")
		if err != nil || out != "index 47 has item 47\n" {
			return fmt.Errorf("%q, %w", out, err)
		}
		return nil
	})
	if out := s.cli("get", "tasks", "--job", "scan", "--index", "47"); !strings.Contains(out, "completed") {
		t.Error(out)
	}
	if len(s.tasksOf("scan")) != size/20 {
		t.Error("reading made a Task")
	}
}

func TestArray_RunsFailedAndRequeuedIndexesAsTasks(t *testing.T) {
	t.Parallel()
	const size = 40
	s := start(t, "--robots", "2")
	trace := testkit.NewIndexTrace(t)
	repaired := filepath.Join(t.TempDir(), "repaired")
	work := shell("work", trace.WrapScript(fmt.Sprintf(`case $K8S4R_TASK_INDEX-$K8S4R_ATTEMPT in 7-1) exit 3;; 13-*) [ -e %s ] || exit 4;; esac`, repaired)))
	job := arrayJob("scan", v1alpha1.Array{Size: size, RangeSize: 10}, work)
	job.Spec.TaskGroups[0].ReschedulePolicy = &v1alpha1.ReschedulePolicy{Attempts: 2, Interval: v1alpha1.NewDuration(time.Hour), Delay: v1alpha1.NewDuration(time.Second)}
	job.Spec.FailurePolicy = &v1alpha1.FailurePolicy{MaxFailedPercent: new(int32(50))}
	s.create(job)
	s.awaitJob("scan", "completed", 2*time.Minute)
	s.awaitCounts("scan", "one failed index", 10*time.Second, func(c v1alpha1.TaskCounts) bool { return c.SucceededTasks == size-1 && c.FailedTasks == 1 })
	if seven := s.task("scan-main-index-7-work"); seven.Status.State != "completed" || seven.Spec.Array.Failure == nil || *seven.Spec.Array.Failure.ExitCode != 3 {
		t.Errorf("index 7: %+v, %+v", seven.Spec.Array, seven.Status)
	}
	if out := s.cli("why", "--job", "scan", "--index", "13"); !strings.Contains(out, "is failed: attempt") || !strings.Contains(out, "ended with exit code 4") {
		t.Error(out)
	}
	if err := os.WriteFile(repaired, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.cli("job", "requeue", "scan", "--index", "3,13")
	s.awaitTask("scan-main-index-13-work", "completed", time.Minute)
	s.awaitTask("scan-main-index-3-work", "completed", time.Minute)
	s.awaitJob("scan", "completed", time.Minute)
	s.awaitCounts("scan", "all indexes succeeded", 10*time.Second, func(c v1alpha1.TaskCounts) bool { return c.SucceededTasks == size && c.TotalTasks == size })
	_, ends := trace.CountRuns(t)
	runs := map[int32]int{}
	for run := range ends {
		runs[run.Index]++
	}
	for i := range int32(size) {
		if want := map[int32]int{3: 2}[i]; runs[i] != max(want, 1) {
			t.Errorf("index %d ended %d times", i, runs[i])
		}
	}
}

func TestArray_PausesResumesAndCancels(t *testing.T) {
	t.Parallel()
	const size = 60
	s := start(t, "--robots", "2")
	trace := testkit.NewIndexTrace(t)
	hold := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.create(arrayJob("scan", v1alpha1.Array{Size: size, RangeSize: 30}, shell("work", trace.WrapScript("sleep 0.2; while [ -e "+hold+" ]; do sleep 0.05; done"))))
	started := func() int {
		starts, _ := trace.CountRuns(t)
		return len(starts)
	}
	testkit.Eventually(t, time.Minute, "each robot has started an index", func() bool { return started() == 2 })
	s.cli("job", "pause", "scan")
	for _, name := range []string{"scan-main-0-work", "scan-main-1-work"} {
		testkit.Eventually(t, time.Minute, name+" starts no more indexes", func() bool { return s.task(name).Spec.Array.PauseAttempt == 1 })
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	s.cli("job", "pause", "scan", "--wait", "--wait-timeout", "1m")
	atPause := started()
	_, ends := trace.CountRuns(t)
	if len(ends) != atPause || atPause == size {
		t.Errorf("paused after %d starts and %d ends of %d", atPause, len(ends), size)
	}
	s.cli("job", "resume", "scan")
	s.awaitJob("scan", "completed", time.Minute)
	trace.CheckIndexes(t, size)
	if n := started(); n != size {
		t.Errorf("%d starts of %d indexes", n, size)
	}

	canceled := testkit.NewIndexTrace(t)
	s.create(arrayJob("other", v1alpha1.Array{Size: size, RangeSize: 30}, shell("work", canceled.WrapScript("sleep 30"))))
	testkit.Eventually(t, time.Minute, "two indexes have started", func() bool { starts, _ := canceled.CountRuns(t); return len(starts) == 2 })
	s.cli("job", "cancel", "other", "--wait", "--wait-timeout", "30s")
	if starts, ends := canceled.CountRuns(t); len(starts) != 2 || len(ends) != 0 {
		t.Errorf("canceled after %d starts and %d ends", len(starts), len(ends))
	}
	s.awaitCounts("other", "all indexes are canceled", 10*time.Second, func(c v1alpha1.TaskCounts) bool { return c.CanceledTasks == size })
}

// hit is a fault in a system that runs the job scan.
type hit struct {
	name string
	do   func(t *testing.T, s *faultSystem)
}

// TestArray_CompletesThroughKills ends parts of the system in the middle of an array, one after the
// other.
func TestArray_CompletesThroughKills(t *testing.T) {
	t.Parallel()
	upEnds := hit{"kill -9 of k8s4r up", func(_ *testing.T, s *faultSystem) { s.Kill(); s.Start() }}
	agentEnds := hit{"kill -9 of one agent", func(t *testing.T, s *faultSystem) { killAgent(t, "robot-2", s.DataDir) }}
	shimsEnd := hit{"kill -9 of the shims", func(t *testing.T, s *faultSystem) { killShims(t, s.tasksOf("scan")) }}
	controlEnds := hit{"kill -9 of manager and server", func(_ *testing.T, s *faultSystem) {
		for _, p := range s.control {
			p.Kill()
			p.Start()
		}
	}}
	linksEnd := hit{"every connection to the broker cut", func(_ *testing.T, s *faultSystem) { s.proxy.CutConnections() }}
	for _, row := range []struct {
		name  string
		start func(t *testing.T) *faultSystem
		hits  []hit
	}{
		{"with Mosquitto", startOnMosquitto, []hit{upEnds}},
		{"with its own broker", startEmbedded, []hit{shimsEnd, agentEnds, upEnds}},
		{"behind a proxy", startBehindProxy, []hit{linksEnd, controlEnds}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			completeThroughHits(t, row.start(t), row.hits)
		})
	}
}

// completeThroughHits runs an array, with the hits in equal distances.
func completeThroughHits(t *testing.T, s *faultSystem, hits []hit) {
	size := int32(160 * len(hits))
	trace := testkit.NewIndexTrace(t)
	s.create(arrayJob("scan", v1alpha1.Array{Size: size, RangeSize: 40}, shell("work", trace.WrapScript("sleep 0.1"))))
	for i, h := range hits {
		ended := int(size) * (i + 1) / (len(hits) + 2)
		testkit.Eventually(t, 2*time.Minute, h.name, func() bool { _, ends := trace.CountRuns(t); return len(ends) > ended })
		h.do(t, s)
	}
	s.awaitJob("scan", "completed", 3*time.Minute)
	s.awaitCounts("scan", "all indexes succeeded", 20*time.Second, func(c v1alpha1.TaskCounts) bool { return c.SucceededTasks == size && c.TotalTasks == size })
	trace.CheckIndexes(t, int(size))
	checkEndsOnce(t, s.tasksOf("scan"))
}

// checkEndsOnce checks that the ranges have no index as both succeeded and failed, and none twice.
func checkEndsOnce(t *testing.T, tasks []v1alpha1.Task) {
	t.Helper()
	for i := range tasks {
		if a := tasks[i].Status.Array; a != nil && tasks[i].IsRange() && (a.Failed != "" || a.Succeeded != tasks[i].Spec.Array.Indexes) {
			text, _ := json.Marshal(a)
			t.Errorf("%s of %s: %s", tasks[i].Name, tasks[i].Spec.Array.Indexes, text)
		}
	}
}

// killShims kills the shims that run these tasks.
func killShims(t *testing.T, tasks []v1alpha1.Task) {
	t.Helper()
	killed := map[int]bool{}
	for i := range tasks {
		for pid := range processesOf(string(tasks[i].UID)) {
			if parent := parentOf(pid); parent > 1 && !processesOf(string(tasks[i].UID))[parent] && syscall.Kill(parent, syscall.SIGKILL) == nil {
				killed[parent] = true
			}
		}
	}
	if len(killed) == 0 {
		t.Fatal("there are no shims")
	}
	t.Logf("killed shims %v", slices.Sorted(maps.Keys(killed)))
}

// processesOf returns the processes of a task, which have its UID in their environment.
func processesOf(uid string) map[int]bool {
	found := map[int]bool{}
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, entry := range entries {
		environ, _ := os.ReadFile(entry)
		if bytes.Contains(environ, []byte("K8S4R_TASK_UID="+uid)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			found[pid] = true
		}
	}
	return found
}

// parentOf returns the parent of a process, or 0 if it has exited.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	var state string
	var parent int
	_, _ = fmt.Sscan(string(rest), &state, &parent)
	return parent
}
