package agent

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

// asAgent makes the test program act as the agent, so that tests can kill it.
const asAgent = "K8S4R_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// agentProcess starts the agent as a process of its own.
func agentProcess(t *testing.T, s *fakeServer, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--robot-id", robot, "--mqtt-url", "mqtt://" + s.addr, "--state-dir", dir}, args...)...)
	cmd.Env = append(os.Environ(), asAgent+"=1")
	cmd.Stderr = testLog(t)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// tracking is a task that writes when it starts and when it ends, with its own
// attempt, and has a child in its group and one outside of it.
func tracking(uid, trace string, ms int) wire.Task {
	return shell(uid, fmt.Sprintf(
		`echo start-$K8S4R_TASK_UID-$K8S4R_ATTEMPT >> %[1]s; sleep 600 & setsid sleep 600 & apart=$!; sleep 0.%03[2]d; kill $apart; echo end-$K8S4R_TASK_UID-$K8S4R_ATTEMPT >> %[1]s`, trace, ms))
}

// manager plays the part of the control plane for one task: while it has not
// completed, dispatch it, and again as a new attempt when it failed through no
// fault of its own.
func (s *fakeServer) manage(t *testing.T, tasks map[string]wire.Task) (attempts map[string]int32) {
	t.Helper()
	attempts = map[string]int32{}
	for uid := range tasks {
		attempts[uid] = 1
	}
	left := len(tasks)
	eventually(t, "all tasks to complete", func() bool {
		for uid, task := range tasks {
			done := false
			for _, r := range s.said(uid, attempts[uid]) {
				if r.Terminal() && r.State == wire.ReportFailed {
					if !wire.NoFault(r.Reason) {
						t.Fatalf("%s failed: %+v", uid, r)
					}
					attempts[uid]++
					done = true
					break
				}
				if done = r.State == wire.ReportCompleted; done {
					delete(tasks, uid)
					left--
					break
				}
			}
			if !done && rand.N(20) == 0 {
				s.dispatch(task, attempts[uid])
			}
		}
		return left == 0
	})
	return attempts
}

func TestKillingTheAgentLosesNothingAndRunsNothingTwice(t *testing.T) {
	const n, kills = 60, 6
	s, dir := newFakeServer(t), t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	t.Cleanup(func() { // what a failure leaves
		_, _ = driver.KillLeftovers(leftoversIn(dir), patience)
	})
	stop, stopped := make(chan struct{}), make(chan int)
	go func() { // a life of violence
		killed := 0
		defer func() { stopped <- killed }()
		for {
			agent := agentProcess(t, s, dir)
			if err := agent.Start(); err != nil {
				t.Error(err)
				return
			}
			life := time.After(time.Hour)
			if killed < kills {
				s.awaitStart(stop)
				life = time.After(rand.N(200 * time.Millisecond))
			}
			select {
			case <-stop:
				_ = agent.Process.Signal(syscall.SIGTERM)
				_ = agent.Wait()
				return
			case <-life:
			}
			_ = agent.Process.Kill()
			_ = agent.Wait()
			killed++
		}
	}()
	tasks := map[string]wire.Task{}
	for i := range n {
		uid := fmt.Sprintf("t%d", i)
		tasks[uid] = tracking(uid, trace, rand.N(300))
	}
	attempts := s.manage(t, tasks)
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
	t.Logf("%d tasks, %d attempts lost to a kill", n, restarted)
	if restarted == 0 {
		t.Error("no kill hit a running task")
	}
	if left := strays(dir); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

// awaitStart waits until one more task is said to run.
func (s *fakeServer) awaitStart(stop <-chan struct{}) {
	for before := s.starts(); s.starts() == before; {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *fakeServer) starts() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		if r.State == wire.ReportRunning {
			n++
		}
	}
	return n
}

// leftoversIn names every attempt that has a directory.
func leftoversIn(dir string) (all []driver.Leftover) {
	dirs, _ := filepath.Glob(filepath.Join(dir, "tasks", "*", "*"))
	for _, d := range dirs {
		all = append(all, driver.Leftover{Dir: d})
	}
	return all
}

// strays lists the processes that were started as tasks in a state directory.
func strays(dir string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), driver.EnvTaskDir+"="+dir) {
			found = append(found, path)
		}
	}
	return found
}

func TestTheEndOfTheParentEndsTheAgent(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	r, w, err := os.Pipe()
	must(t, err)
	agent := agentProcess(t, s, dir, "--parent-fd", "3")
	agent.ExtraFiles = []*os.File{r}
	must(t, agent.Start())
	_ = r.Close()
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "ls -l /proc/self/fd; sleep 600"), 1)
	s.awaitRunning("t1", 1)
	eventually(t, "the task to list its descriptors", func() bool { return len(lines(stateFile(dir, "t1", 1, "stdout.log"))) > 20 })
	_ = w.Close()
	must(t, agent.Wait())
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonAgentStopped {
		t.Errorf("end = %+v, want AgentStopped", end)
	}
	if out, _ := os.ReadFile(stateFile(dir, "t1", 1, "stdout.log")); strings.Contains(string(out), "pipe:") {
		t.Errorf("the parent's pipe reached the task:\n%s", out)
	}
}

func TestMainStopsInOrderOnSIGTERM(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	agent := agentProcess(t, s, dir)
	must(t, agent.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "sleep 600"), 1)
	s.awaitRunning("t1", 1)
	must(t, agent.Process.Signal(syscall.SIGTERM))
	must(t, agent.Wait())
	s.awaitEnd("t1", 1)
}

func TestMainRefusesASecondAgent(t *testing.T) {
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
