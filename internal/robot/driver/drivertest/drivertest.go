// Package drivertest is the conformance suite of drivers. It runs them in a real shim, so the test
// program must become the shim when it is started as one (Main).
package drivertest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tasklog "k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/builtin"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/setup"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

const testTimeout = time.Minute

// Suite describes how to test one driver.
type Suite struct {
	// Driver is its name.
	Driver string
	// Program is the file of the shim's program. If empty, it is that of the test.
	Program string
	// Engine is the unix socket of the Docker engine. It may be empty for other drivers.
	Engine string
	// Shell returns the config that runs a script with sh. If the script is not the task's first
	// process, LEADER holds the PID of that.
	Shell func(script string) wire.TaskConfig
	// Broken maps error texts to the configs that Check must reject with them.
	Broken map[string]wire.TaskConfig
	// Unstartable maps error texts to configs that Check accepts and Start must reject with them.
	Unstartable map[string]wire.TaskConfig
	// Left lists what is left of an attempt besides processes. If nil, there can be nothing.
	Left func(driver.Attempt) []string
}

// Main runs the shim if the test program was started as one, and otherwise the tests.
func Main(m *testing.M) {
	if status, ok := setup.Main(os.Args[1:]); ok {
		syscall.Exit(status) // os.Exit waits a second under the race detector
	}
	os.Exit(m.Run())
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Run("an incomplete config is rejected", s.rejectsBrokenConfig)
	t.Run("a command that cannot start is rejected", s.rejectsUnstartableConfig)
	t.Run("exit codes and signals are reported", s.reportsExit)
	t.Run("the task starts in its own directory with only the given environment", s.isolatesEnvironment)
	t.Run("output goes to files and stdin is empty", s.writesOutput)
	t.Run("processes that outlive the leader are killed", s.killsGroup)
	t.Run("a group that ignores SIGTERM is killed after the grace period", s.killsAfterGrace)
	t.Run("daemonized processes are killed", s.killsDaemons)
	t.Run("processes of a killed shim are swept", s.sweepsAfterShimKill)
	t.Run("a task is stopped at its timeout", s.enforcesTimeout)
	t.Run("the indexes of a range run one after another", s.runsRange)
	t.Run("an index of a range is stopped at its timeout", s.enforcesTimeoutOfIndex)
	t.Run("processes of a range whose shim was killed are swept", s.sweepsRangeAfterShimKill)
	t.Run("an end by SIGTERM while the robot shuts down is no fault", s.detectsShutdown)
	t.Run("the agent's descriptors do not reach the task", s.closesDescriptors)
}

func (s Suite) driver() driver.Driver { return builtin.NewSet(s.Engine)[s.Driver] }

func (s Suite) rejectsBrokenConfig(t *testing.T) {
	for want, config := range s.Broken {
		if err := s.driver().Check(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %q in it", err, want)
		}
	}
}

func (s Suite) rejectsUnstartableConfig(t *testing.T) {
	for want, config := range s.Unstartable {
		if err := s.driver().Check(config); err != nil {
			t.Errorf("Check = %v, want the error %q from Start", err, want)
		}
		if e := s.start(t, shim.Spec{Config: config}).end(); !strings.Contains(e.Error, want) || e.Code != -1 {
			t.Errorf("ended as %+v, want %q in it", e, want)
		}
	}
}

func (s Suite) reportsExit(t *testing.T) {
	for script, want := range map[string]shim.Exit{
		"exit 0":                           {Code: 0},
		"exit 3":                           {Code: 3},
		"kill -9 ${LEADER:-$$}; sleep 600": {Code: 137, Signal: 9},
	} {
		got := s.run(t, script).end()
		if got.Code != want.Code || got.Signal != want.Signal || got.StopReason != "" || got.Killed || got.Error != "" {
			t.Errorf("%q ended as %+v, want %+v", script, got, want)
		}
	}
}

func (s Suite) isolatesEnvironment(t *testing.T) {
	t.Setenv("K8S4R_AGENT_TOKEN", "secret")
	r := s.start(t, shim.Spec{Config: s.Shell("pwd; env"), Env: map[string]string{"GREETING": "hello\nworld"}})
	r.end()
	out := r.output(tasklog.Stdout)
	if !strings.HasPrefix(out, r.dir+"\n") || !strings.Contains(out, "GREETING=hello\nworld") {
		t.Errorf("output = %q, want it to start in %s with GREETING", out, r.dir)
	}
	if strings.Contains(out, "secret") {
		t.Errorf("the agent's environment reached the task: %q", out)
	}
}

func (s Suite) writesOutput(t *testing.T) {
	r := s.run(t, "cat; echo out; echo err >&2")
	r.end()
	if out, err := r.output(tasklog.Stdout), r.output(tasklog.Stderr); out != "out\n" || err != "err\n" {
		t.Errorf("stdout %q and stderr %q, want out and err", out, err)
	}
}

func (s Suite) killsGroup(t *testing.T) {
	s.run(t, "sleep 600 &").end()
}

func (s Suite) killsDaemons(t *testing.T) {
	s.run(t, "setsid sh -c 'setsid sleep 600 & echo $! > child' & while [ ! -s child ]; do sleep 0.01; done").end()
}

func (s Suite) sweepsAfterShimKill(t *testing.T) {
	r := s.run(t, "echo ready > ready; sleep 600")
	r.await("the task to run", func() bool { return r.read("ready") != "" })
	if len(r.processes()) == 0 {
		t.Fatal("no process of the task was found")
	}
	s.sweepAfterShimKill(t, r)
}

// sweepAfterShimKill kills the shim of a task, and then removes what is left as an agent does.
func (s Suite) sweepAfterShimKill(t *testing.T, r started) {
	t.Helper()
	if err := syscall.Kill(r.shim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.await("the shim to be gone", func() bool { return !proc.IsAlive(r.shim.PID) })
	if _, err := supervisor.KillLeftovers([]supervisor.Leftover{{Dir: r.dir}}, testTimeout); err != nil {
		t.Error(err)
	}
	if err := builtin.NewSet(s.Engine).Sweep(s.Driver, r.attempt); err != nil {
		t.Error(err)
	}
	r.requireNothingLeft()
}

func (s Suite) killsAfterGrace(t *testing.T) {
	r := s.run(t, "trap '' TERM; sleep 600 & echo ready > ready; wait")
	r.await("the task to ignore SIGTERM", func() bool { return r.read("ready") != "" })
	if err := r.shims.Stop(r.shim, "Stopped", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if e := r.end(); e.Signal != int(syscall.SIGKILL) || !e.Killed || e.StopReason != "Stopped" {
		t.Errorf("exit = %+v, want killed for reason Stopped", e)
	}
}

func (s Suite) enforcesTimeout(t *testing.T) {
	const timeout = 300 * time.Millisecond
	r := s.start(t, shim.Spec{Config: s.Shell("exec sleep 600"), Timeout: timeout, KillTimeout: time.Minute})
	e := r.end()
	if e.StopReason != wire.ReasonTimeout || e.Code != 128+int(syscall.SIGTERM) || e.Killed {
		t.Errorf("exit = %+v, want SIGTERM for reason Timeout", e)
	}
	if ran := e.At.Sub(r.state.Started.At); ran < timeout {
		t.Errorf("ended after %v, before its timeout of %v", ran, timeout)
	}
}

func (s Suite) detectsShutdown(t *testing.T) {
	r := s.start(t, shim.Spec{Config: s.Shell("echo ready > ready; exit 143"), ShutdownWait: time.Hour})
	r.await("the task to run", func() bool { return r.read("ready") != "" })
	r.await("the task to end", func() bool { return len(r.processes()) == 0 })
	if err := syscall.Kill(r.shim.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := r.end(); e.StopReason != wire.ReasonAgentStopped || e.Code != 143 {
		t.Errorf("exit = %+v, want code 143 for reason AgentStopped", e)
	}
}

func (s Suite) closesDescriptors(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "secret-of-the-agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := s.run(t, "ls /proc/self/fd")
	r.end()
	if out := r.output(tasklog.Stdout); out != "0\n1\n2\n3\n" { // 3 is the directory that ls reads
		t.Errorf("descriptors of the task: %s", out)
	}
}

// StopsBeforeTheStart stops a task while its config is being prepared. The preparation of the
// config must not finish by itself.
func (s Suite) StopsBeforeTheStart(t *testing.T, config wire.TaskConfig, at <-chan struct{}) {
	t.Helper()
	r := s.start(t, shim.Spec{Config: config})
	select {
	case <-at:
	case <-time.After(testTimeout):
		t.Fatal("the task is not prepared")
	}
	if err := r.shims.Stop(r.shim, wire.ReasonStopped, time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := r.end(); e.StopReason != wire.ReasonStopped || e.Code != -1 || e.Error != "" || r.state.MayHaveStarted {
		t.Errorf("exit = %+v, mayHaveStarted %v, want stopped before the start", e, r.state.MayHaveStarted)
	}
}

// started is a running task with its shim.
type started struct {
	t       *testing.T
	attempt driver.Attempt
	dir     string // the task's directory
	logs    string
	shims   *supervisor.Supervisor
	shim    *supervisor.Shim
	state   *shim.State // the final state; set by end
	left    func(driver.Attempt) []string
}

func (s Suite) run(t *testing.T, script string) started {
	t.Helper()
	return s.start(t, shim.Spec{Config: s.Shell(script)})
}

func (s Suite) start(t *testing.T, spec shim.Spec) started {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shims, err := supervisor.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shims.Close)
	attempt := driver.Attempt{UID: filepath.Base(filepath.Dir(dir)) + "-" + filepath.Base(dir), Number: 1, Robot: "robot-1"}
	spec.Program, spec.Driver, spec.Engine, spec.Contained.Attempt, spec.Contained.TaskUser = s.Program, s.Driver, s.Engine, attempt, "65534:65534"
	spec.Dir, spec.LogDir, spec.WorkDir = filepath.Join(dir, "shim"), filepath.Join(dir, "logs"), filepath.Join(dir, "work")
	env := map[string]string{"PATH": driver.DefaultPath, supervisor.EnvTaskDir: spec.WorkDir}
	maps.Copy(env, spec.Env)
	spec.Env = env
	for _, d := range []string{spec.LogDir, spec.WorkDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sh, err := shims.Start(spec, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = supervisor.KillTask(spec.Dir, testTimeout) })
	return started{t: t, attempt: attempt, dir: spec.WorkDir, logs: spec.LogDir, shims: shims, shim: sh, state: &shim.State{}, left: s.Left}
}

// end waits until the shim has exited, and checks that nothing is left.
func (r started) end() shim.Exit {
	r.t.Helper()
	for {
		select {
		case <-r.shims.Events():
		case <-time.After(testTimeout):
			r.t.Fatalf("the task has not ended after %v", testTimeout)
		}
		for _, n := range r.shims.Updates() {
			if *r.state = n.State; n.ShimExited && n.Exit == nil {
				r.t.Fatalf("the shim has exited without recording the exit of the task: %+v", n)
			}
			if n.ShimExited {
				r.requireNothingLeft()
				return *n.Exit
			}
		}
	}
}

// output returns what the task wrote to a stream.
func (r started) output(s tasklog.Stream) string {
	r.t.Helper()
	files, _ := filepath.Glob(filepath.Join(r.logs, "*"))
	var out strings.Builder
	for _, f := range files { // the names are in chronological order
		b, err := os.ReadFile(f)
		if err != nil {
			r.t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			record, err := tasklog.Parse(line)
			if err != nil {
				r.t.Fatalf("%q: %v", line, err)
			}
			if record.Stream != s {
				continue
			}
			out.Write(record.Text)
			if !record.Partial {
				out.WriteByte('\n')
			}
		}
	}
	return out.String()
}

func (r started) read(name string) string {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil && !os.IsNotExist(err) {
		r.t.Error(err)
	}
	return string(b)
}

func (r started) await(what string, ok func() bool) {
	r.t.Helper()
	for until := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatalf("waited %v for %s", testTimeout, what)
		}
	}
}

// processes returns the processes of the task, found by their environment.
func (r started) processes() (found []int) {
	variable := []byte(supervisor.EnvTaskDir + "=" + r.dir + "\x00")
	for _, pid := range proc.ListAll() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(env, variable) {
			found = append(found, pid)
		}
	}
	return found
}

// requireNothingLeft fails the test if processes of the task or anything else is left.
func (r started) requireNothingLeft() {
	r.t.Helper()
	if left := r.processes(); len(left) > 0 {
		r.t.Errorf("processes %v of the task are still running", left)
	}
	if r.left == nil {
		return
	}
	if left := r.left(r.attempt); len(left) > 0 {
		r.t.Errorf("the task has left %q", left)
	}
}
