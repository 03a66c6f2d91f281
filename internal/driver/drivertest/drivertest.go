// Package drivertest is the suite that every driver passes.
package drivertest

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/wire"
)

const patience = 20 * time.Second

// Suite says how to test one driver.
type Suite struct {
	New func(t *testing.T) driver.Driver
	// Shell is the config that runs a script by sh.
	Shell func(script string) wire.TaskConfig
	// Broken are configs that Check must refuse, by what the refusal says.
	Broken map[string]wire.TaskConfig
	// Unstartable are configs that Check passes and Start must refuse, by what
	// the refusal says.
	Unstartable map[string]wire.TaskConfig
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Run("a config that is not whole is refused", s.refusesBroken)
	t.Run("a command that cannot start is refused", s.refusesUnstartable)
	t.Run("exit codes and signals are reported as they are", s.tellsHowItEnded)
	t.Run("the task starts in its own directory with the given environment alone", s.isolatesEnvironment)
	t.Run("output goes to files and stdin is empty", s.writesOutput)
	t.Run("what the leader leaves of its group is killed", s.killsTheRest)
	t.Run("a group that ignores SIGTERM is killed after the grace", s.killsTheDeaf)
	t.Run("the agent's descriptors do not reach the task", s.closesDescriptors)
}

func (s Suite) refusesBroken(t *testing.T) {
	for want, config := range s.Broken {
		if err := s.New(t).Check(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want %q in it", err, want)
		}
	}
}

func (s Suite) refusesUnstartable(t *testing.T) {
	d := s.New(t)
	for want, config := range s.Unstartable {
		if err := d.Check(config); err != nil {
			t.Errorf("Check = %v, want the refusal %q to come from Start", err, want)
		}
		_, err := d.Start(driver.Task{Config: config, Dir: t.TempDir(), Env: map[string]string{"PATH": driver.DefaultPath}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start = %v, want %q in it", err, want)
		}
	}
}

func (s Suite) tellsHowItEnded(t *testing.T) {
	for script, want := range map[string]driver.Exit{
		"exit 0":     {Code: 0},
		"exit 3":     {Code: 3},
		"kill -9 $$": {Code: 137, Signal: 9},
	} {
		got := s.start(t, script, nil).end()
		if got.Code != want.Code || got.Signal != want.Signal || got.Cause != driver.CauseNone || got.Killed {
			t.Errorf("%q ended as %+v, want %+v", script, got, want)
		}
	}
}

func (s Suite) isolatesEnvironment(t *testing.T) {
	t.Setenv("K8S4R_AGENT_TOKEN", "secret")
	r := s.start(t, "pwd; env", map[string]string{"GREETING": "hello\nworld"})
	r.end()
	out := r.read(driver.StdoutFile)
	if !strings.HasPrefix(out, r.dir+"\n") || !strings.Contains(out, "GREETING=hello\nworld") {
		t.Errorf("output = %q, want it to start in %s with GREETING", out, r.dir)
	}
	if strings.Contains(out, "secret") {
		t.Errorf("the agent's environment reached the task: %q", out)
	}
}

func (s Suite) writesOutput(t *testing.T) {
	r := s.start(t, "cat; echo out; echo err >&2", nil)
	r.end()
	if out, err := r.read(driver.StdoutFile), r.read(driver.StderrFile); out != "out\n" || err != "err\n" {
		t.Errorf("stdout %q and stderr %q, want out and err", out, err)
	}
}

func (s Suite) killsTheRest(t *testing.T) {
	r := s.start(t, "sleep 600 & echo $!", nil)
	r.end()
	r.gone(r.read(driver.StdoutFile))
}

func (s Suite) killsTheDeaf(t *testing.T) {
	r := s.start(t, "trap '' TERM; sleep 600 & echo $! > child; echo ready > ready; wait", nil)
	r.await("the task to be deaf", func() bool { return r.read("ready") != "" })
	r.supervisor.Stop(r.process, 50*time.Millisecond, "Stopped")
	if e := r.end(); e.Signal != int(syscall.SIGKILL) || !e.Killed || e.Cause != "Stopped" {
		t.Errorf("ended as %+v, want killed because Stopped", e)
	}
	r.gone(r.read("child"))
}

func (s Suite) closesDescriptors(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "secret-of-the-agent"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := s.start(t, "ls -l /proc/self/fd", nil)
	r.end()
	if out := r.read(driver.StdoutFile); strings.Contains(out, f.Name()) || !strings.Contains(out, driver.StdoutFile) {
		t.Errorf("descriptors of the task: %s", out)
	}
}

// started is a process under supervision.
type started struct {
	t          *testing.T
	dir        string
	process    *driver.Process
	supervisor *driver.Supervisor
}

func (s Suite) start(t *testing.T, script string, env map[string]string) started {
	t.Helper()
	d := s.New(t)
	config := s.Shell(script)
	if err := d.Check(config); err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{"PATH": driver.DefaultPath}
	maps.Copy(whole, env)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := driver.NewSupervisor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(supervisor.Close)
	p, err := d.Start(driver.Task{Config: config, Dir: dir, Env: whole})
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Watch(p, driver.Limits{}); err != nil {
		t.Fatal(err)
	}
	return started{t: t, dir: dir, process: p, supervisor: supervisor}
}

// end waits for the end of the process.
func (r started) end() driver.Exit {
	r.t.Helper()
	select {
	case <-r.supervisor.Ended():
	case <-time.After(patience):
		r.t.Fatal("the task does not end")
	}
	exits := r.supervisor.Exits()
	if len(exits) != 1 || exits[0].Process != r.process {
		r.t.Fatalf("exits = %+v, want one", exits)
	}
	return exits[0]
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
	for until := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// gone waits until the process with the PID in text is no more.
func (r started) gone(text string) {
	r.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		r.t.Fatalf("the task wrote %q instead of a PID", text)
	}
	r.await("process "+text+" to be gone", func() bool { return !driver.Alive(pid) })
}
