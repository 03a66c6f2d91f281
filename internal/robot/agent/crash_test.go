package agent

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/setup"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// asAgent makes the test program act as the agent, so that tests can kill it.
const asAgent = "K8S4R_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if status, ours := setup.Main(os.Args[1:]); ours {
		syscall.Exit(status) // os.Exit waits a second under the race detector
	}
	if os.Getenv(asAgent) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// agentProcess returns a command that runs the agent as a process of its own. Its tasks run as
// the test's user, because they write outside of their directories.
func agentProcess(t *testing.T, s *fakeServer, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--robot-id", robot, "--mqtt-url", "mqtt://" + s.addr, "--state-dir", dir, "--task-user", currentUser(t)}, args...)...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	cmd.Stderr = testLog(t)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		must(t, runner.StateDir(dir).UnprotectTaskDirs())
	})
	return cmd
}

// trackingTask returns a task that writes its attempt when it starts and when it ends, and has a
// child in its process group and one outside.
func trackingTask(uid, trace string, ms int) wire.Task {
	return shell(uid, fmt.Sprintf(
		`echo start-$K8S4R_TASK_UID-$K8S4R_ATTEMPT >> %[1]s; sleep 600 & setsid sleep 600 & apart=$!; sleep 0.%03[2]d; kill $apart; echo end-$K8S4R_TASK_UID-$K8S4R_ATTEMPT >> %[1]s`, trace, ms))
}

// runToCompletion acts as the control plane: it dispatches tasks until they complete, and creates a new
// attempt after a failure that is no fault of the task.
func (s *fakeServer) runToCompletion(t *testing.T, tasks map[string]wire.Task) (attempts map[string]int32) {
	t.Helper()
	attempts = map[string]int32{}
	for uid := range tasks {
		attempts[uid] = 1
	}
	for len(tasks) > 0 {
		waitUntil(t, "another task to complete", func() bool {
			before := len(tasks)
			for uid, task := range tasks {
				switch end := s.endOf(uid, attempts[uid]); {
				case end == nil:
					if rand.N(20) == 0 {
						s.dispatch(task, attempts[uid])
					}
				case end.State == wire.ReportCompleted:
					delete(tasks, uid)
				case wire.IsWithoutFault(end.Reason):
					attempts[uid]++
				default:
					t.Fatalf("%s failed: %+v", uid, *end)
				}
			}
			return len(tasks) < before
		})
	}
	return attempts
}

// endOf returns the report about the end of an attempt. It is nil if the attempt has not ended.
func (s *fakeServer) endOf(uid string, attempt int32) *wire.Status {
	for _, r := range s.reportsAbout(uid, attempt) {
		if r.IsTerminal() {
			return &r
		}
	}
	return nil
}

func TestCrash_LosesNothingAndRunsNothingTwice(t *testing.T) {
	n, kills := 60, 6
	if testing.Short() {
		n, kills = 25, 4
	}
	s, dir := newFakeServer(t), t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	killTasksAtEnd(t, dir)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		killed := 0
		defer func() { stopped <- killed }()
		for {
			agent := agentProcess(t, s, dir)
			if err := agent.Start(); err != nil {
				t.Error(err)
				return
			}
			kill := time.After(time.Hour)
			if killed < kills {
				s.awaitStart(stop)
				kill = time.After(rand.N(200 * time.Millisecond))
			}
			select {
			case <-stop:
				_ = agent.Process.Signal(syscall.SIGTERM) // which leaves what runs
				_ = agent.Wait()
				return
			case <-kill:
			}
			_ = agent.Process.Kill()
			_ = agent.Wait()
			killed++
		}
	}()
	tasks := map[string]wire.Task{}
	for i := range n {
		uid := fmt.Sprintf("t%d", i)
		tasks[uid] = trackingTask(uid, trace, rand.N(300))
	}
	attempts := s.runToCompletion(t, tasks)
	close(stop)
	if killed := <-stopped; killed == 0 {
		t.Error("the agent was never killed")
	}

	count := map[string]int{}
	for _, line := range lines(trace) {
		count[line]++
	}
	restarted := 0
	for uid, last := range attempts {
		restarted += int(last) - 1
		if got := count[fmt.Sprintf("end-%s-%d", uid, last)]; got != 1 {
			t.Errorf("the attempt of %s that completed wrote its end %d times", uid, got)
		}
		for attempt := int32(1); attempt <= last; attempt++ {
			if got := count[fmt.Sprintf("start-%s-%d", uid, attempt)]; got > 1 {
				t.Errorf("attempt %d of %s ran %d times", attempt, uid, got)
			}
		}
	}
	if restarted > 0 {
		t.Errorf("%d attempts were lost with an agent, want none", restarted)
	}
	if left := taskProcesses(dir); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

// awaitStart waits until one more task is reported as running.
func (s *fakeServer) awaitStart(stop <-chan struct{}) {
	for before := s.countStarts(); s.countStarts() == before; {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *fakeServer) countStarts() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		if r.State == wire.ReportRunning {
			n++
		}
	}
	return n
}

// killTasksAtEnd kills the tasks that outlive their agents when the test ends.
func killTasksAtEnd(t *testing.T, dir string) {
	t.Cleanup(func() {
		found, _ := filepath.Glob(filepath.Join(dir, "tasks", "*", "*", "shim*"))
		for _, d := range found {
			if err := supervisor.KillTask(d, testTimeout); err != nil {
				t.Error(err)
			}
		}
	})
}

// taskProcesses returns the processes that were started as tasks in a state directory.
func taskProcesses(dir string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), supervisor.EnvTaskDir+"="+dir) {
			found = append(found, path)
		}
	}
	return found
}

func TestStop_WhenTheParentEnds(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	r, w, err := os.Pipe()
	must(t, err)
	agent := agentProcess(t, s, dir, "--parent-fd", "3", "--on-stop", "end")
	agent.ExtraFiles = []*os.File{r}
	must(t, agent.Start())
	_ = r.Close()
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "ls -l /proc/self/fd; sleep 600"), 1)
	s.awaitRunning("t1", 1)
	waitUntil(t, "the task to list its descriptors", func() bool { return strings.Contains(output(t, dir, "t1", 1, record.Stdout), " 2 -> ") })
	_ = w.Close()
	must(t, agent.Wait())
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentStopped {
		t.Errorf("end = %+v, want AgentStopped", end)
	}
	if out := output(t, dir, "t1", 1, record.Stdout); strings.Count(out, "pipe:") > 2 {
		t.Errorf("the parent's pipe reached the task:\n%s", out)
	}
}

func TestOnStop(t *testing.T) {
	t.Run("end: the tasks end before the agent", func(t *testing.T) {
		s, dir := newFakeServer(t), t.TempDir()
		agent := agentProcess(t, s, dir, "--on-stop", "end")
		must(t, agent.Start())
		s.awaitRegistered(1)
		s.dispatch(shell("t1", "sleep 600"), 1)
		s.awaitRunning("t1", 1)
		must(t, agent.Process.Signal(syscall.SIGTERM))
		must(t, agent.Wait())
		s.awaitEnd("t1", 1)
	})
	t.Run("leave: they run on, and the next agent reports their end", func(t *testing.T) {
		s, dir := newFakeServer(t), t.TempDir()
		killTasksAtEnd(t, dir)
		agent := agentProcess(t, s, dir)
		must(t, agent.Start())
		s.awaitRegistered(1)
		s.dispatch(shell("t1", "echo $$; while [ ! -e go ]; do sleep 0.01; done; exit 5"), 1)
		s.awaitRunning("t1", 1)
		must(t, agent.Process.Signal(syscall.SIGTERM))
		must(t, agent.Wait())
		if reports := s.distinctReports("t1", 1); len(reports) != 2 || reports[1].State != wire.ReportRunning || len(taskProcesses(dir)) == 0 {
			t.Fatalf("the task did not run on: %+v", reports)
		}
		must(t, os.WriteFile(filepath.Join(runner.StateDir(dir).WorkDir("t1", 1), "go"), nil, 0o600))
		waitUntil(t, "the task to end by itself", func() bool { return len(taskProcesses(dir)) == 0 })
		startAgent(t, s.config(dir))
		if end := s.awaitEnd("t1", 1); end.ExitCode != 5 || end.Reason != wire.ReasonExited || end.StartedAt == nil {
			t.Errorf("end = %+v, want exit code 5 and when it started", end)
		}
	})
}

func TestCrash_NextAgentTakesOverTasks(t *testing.T) {
	t.Parallel()
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "sleep 600"), 1)
	s.dispatch(shell("t2", "sleep 600", func(w *wire.Task) { w.Spec.Timeout = wire.Duration(5 * time.Second) }), 1)
	s.awaitRunning("t1", 1)
	s.awaitRunning("t2", 1)
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(2)
	if end := s.awaitEnd("t2", 1); end.Reason != wire.ReasonTimeout || end.Seq <= 1<<32 {
		t.Errorf("end = %+v, want Timeout, under a number above those of the agent before", end)
	}
	s.remove("t1", 1)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStopped {
		t.Errorf("end = %+v, want Stopped", end)
	}
	waitUntil(t, "nothing to be known as running", func() bool { return a.shims.ShimCount() == 0 })
}

// The agent keeps a warm shim once it has run a task. An unused warm shim exits with the
// agent; one that runs a task does not.
func TestWarmShim_ServesTheNextTask(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	killTasksAtEnd(t, dir)
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	if idle := proc.ListDescendants(agent.Process.Pid); len(idle) > 0 {
		t.Errorf("an agent that has run nothing has processes %v", idle)
	}
	spare := func(used ...int) (pid int) {
		waitUntil(t, "a shim at hand", func() bool {
			below := slices.DeleteFunc(proc.ListDescendants(agent.Process.Pid), func(pid int) bool { return slices.Contains(used, pid) || !proc.IsAlive(pid) })
			pid = slices.Max(append(below, 0))
			return len(below) == 1
		})
		return pid
	}
	s.dispatch(shell("t1", "exit 0"), 1)
	s.awaitEnd("t1", 1)
	first := spare()
	s.dispatch(shell("t2", "exec sleep 600"), 1)
	s.awaitRunning("t2", 1)
	state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t2", 1))
	must(t, err)
	if state.Shim.PID != first {
		t.Errorf("process %d is the shim, and %d was at hand", state.Shim.PID, first)
	}
	second := spare(first, state.Started.PID)
	must(t, agent.Process.Kill())
	_ = agent.Wait()
	waitUntil(t, "the one at hand to go", func() bool { return !proc.IsAlive(second) })
	if !proc.IsAlive(first) || !proc.IsAlive(state.Started.PID) {
		t.Error("the task or its shim went with the agent")
	}
}

// Only an operator, or a robot without memory, kills a shim.
func TestCrash_KilledShimEndsItsTask(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "setsid sleep 600 & sleep 600"), 1)
	s.awaitRunning("t1", 1)
	waitUntil(t, "three processes", func() bool { return len(taskProcesses(dir)) == 3 })
	state, err := shim.ReadState(runner.StateDir(dir).ShimDir("t1", 1))
	must(t, err)
	must(t, syscall.Kill(state.Shim.PID, syscall.SIGKILL))
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentRestarted || end.State != wire.ReportFailed {
		t.Errorf("end = %+v, want failed, AgentRestarted", end)
	}
	if left := taskProcesses(dir); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

func TestCrash_UnstartedAttemptIsDispatchedAgain(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	for uid, boot := range map[string]string{"t1": proc.BootID(), "t2": "another"} {
		task := shell(uid, "exit 0")
		j, err := journal.Open(dir, journal.Options{})
		must(t, err)
		must(t, j.Append(journal.Record{Kind: journal.Accepted, UID: uid, Attempt: 1, At: time.Now(), Task: &task, BootID: boot}))
		must(t, j.Close())
	}
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	must(t, j.Append(
		journal.Record{Kind: journal.Accepted, UID: "t3", Attempt: 1, At: time.Now(), BootID: proc.BootID()},
		journal.Record{Kind: journal.Started, UID: "t3", Attempt: 1, At: time.Now(), Process: &journal.Process{PID: 1}}))
	must(t, j.Close())
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	if end := s.awaitEnd("t3", 1); end.Reason != wire.ReasonAgentRestarted {
		t.Errorf("a task whose shim was killed ended as %+v, want AgentRestarted", end)
	}
	if end := s.awaitEnd("t2", 1); end.Reason != wire.ReasonRobotRebooted {
		t.Errorf("what may have run in another boot ended as %+v, want RobotRebooted", end)
	}
	s.dispatch(shell("t1", "exit 0"), 1)
	if end := s.awaitEnd("t1", 1); end.State != wire.ReportCompleted {
		t.Errorf("end = %+v, want completed", end)
	}
}

func TestMain_RejectsSecondAgent(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	second := agentProcess(t, s, dir)
	second.Stderr = nil
	stderr, err := second.StderrPipe()
	must(t, err)
	must(t, second.Start())
	b, err := io.ReadAll(bufio.NewReader(stderr))
	must(t, err)
	_ = second.Wait()
	if code := second.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(string(b), errLocked.Error()) {
		t.Errorf("exit %d, %q; want %d and %q", code, b, exitFailed, errLocked)
	}
}
