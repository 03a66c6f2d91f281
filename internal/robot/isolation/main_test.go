package isolation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleVar selects a role: the test program is also the programs that the tests start.
const roleVar = "ISOLATION_TEST_ROLE"

var roles = map[string]func(){
	"shim":  shim,
	"probe": func() { _ = json.NewEncoder(os.Stdout).Encode(ProbeHost("nobody", os.TempDir())) },
	"eat":   eat,
}

func TestMain(m *testing.M) {
	if role, ok := roles[os.Getenv(roleVar)]; ok {
		role()
		return
	}
	code := m.Run()
	if t := host().Tree; t != nil {
		_ = t.Remove()
	}
	os.Exit(code)
}

// host is what this host supports, with a tree for the tests.
var host = sync.OnceValue(func() Host {
	return ProbeHost(fmt.Sprintf("test-%d", os.Getpid()), os.TempDir())
})

// allowed reports whether the host supports the facts that a test needs. If not, the host must
// have reported a reason and a remedy.
func allowed(t *testing.T, facts ...Fact) bool {
	t.Helper()
	all := true
	for _, f := range facts {
		if host().Allows(f) {
			continue
		}
		all = false
		if l := host().explainMissing(f); l.Reason == "" || l.Remedy == "" {
			t.Errorf("%s is missing, and the host reports only %+v", f, l)
		}
	}
	return all
}

// newCgroup returns a cgroup that the test must leave empty, and removes it at the end.
func newCgroup(t *testing.T, tree *Tree, l Limits) *Cgroup {
	t.Helper()
	c, err := tree.Create(strings.ReplaceAll(t.Name(), "/", "-"), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Kill(10*time.Second), c.Remove()); err != nil {
			t.Error(err)
		}
		if err := c.checkExists(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup is left: %v", err)
		}
	})
	return c
}

// task is a started process with pipes to it.
type task struct {
	pid, pidfd int
	in         *os.File // its stdin
	out        *os.File // its stdout and stderr
}

func self(role string) Command {
	return Command{Path: "/proc/self/exe", Args: []string{"self"}, Env: []string{roleVar + "=" + role}}
}

func sh(script string, args ...string) Command {
	return Command{Path: "/bin/sh", Args: append([]string{"sh", "-c", script, "sh"}, args...), Env: []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}}
}

func start(t *testing.T, c Command, f Confinement) *task {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Files = []*os.File{inR, outW, outW}
	pid, pidfd, err := Start(c, f)
	inR.Close()
	outW.Close()
	if err != nil {
		t.Fatalf("start %q: %v", c.Args, err)
	}
	t.Cleanup(func() { inW.Close(); outR.Close(); unix.Close(pidfd) })
	return &task{pid, pidfd, inW, outR}
}

// line returns the next line of the process's output.
func (k *task) line(t *testing.T) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := k.out.Read(b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
	}
}

func (k *task) wait(t *testing.T) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(k.pid, &status, 0, nil)
		if err == nil {
			return status
		}
		if !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
	}
}

// run runs a process until it exits.
func run(t *testing.T, c Command, f Confinement) (string, syscall.WaitStatus) {
	t.Helper()
	k := start(t, c, f)
	k.in.Close()
	out, err := io.ReadAll(k.out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), k.wait(t)
}

// requireOutput runs a script that must succeed, and compares its output.
func requireOutput(t *testing.T, script string, f Confinement, want string) {
	t.Helper()
	out, status := run(t, sh(script), f)
	if out != want || status.ExitStatus() != 0 {
		t.Errorf("%s\nsays %q (status %d), want %q", script, out, status, want)
	}
}

// order is what a test sends to the shim.
type order struct {
	Command     Command
	Confinement Confinement
	Kill        bool // kill the cgroup as soon as the command runs in it
}

// shimCommand runs one command in its own process, like the agent's shim.
func shimCommand(t *testing.T, o order) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = []string{roleVar + "=shim", "ORDER=" + string(b)}
	c.SysProcAttr = &syscall.SysProcAttr{}
	return c
}

func shim() {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv("ORDER")), &o); err != nil {
		panic(err)
	}
	type exit struct {
		pid    int
		status syscall.WaitStatus
	}
	exits := make(chan exit, 1)
	go func() { // PID 1 must reap all children
		for {
			var e exit
			var err error
			if e.pid, err = syscall.Wait4(-1, &e.status, 0, nil); err != nil {
				runtime.Gosched()
				continue
			}
			exits <- e
		}
	}()
	o.Command.Files = []*os.File{os.Stdin, os.Stdout, os.Stderr}
	pid, _, err := Start(o.Command, o.Confinement)
	if err != nil {
		fmt.Println(err)
		os.Exit(120)
	}
	if o.Kill {
		fmt.Println(o.Confinement.Cgroup.Kill(10 * time.Second))
	}
	for e := range exits {
		if e.pid == pid { // and not an orphan that was reparented
			if o.Kill {
				fmt.Println(e.status.Signal())
				os.Exit(0)
			}
			os.Exit(e.status.ExitStatus())
		}
	}
}

// output runs a process without Start. It must succeed.
func output(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// eat uses more memory than any test allows.
func eat() {
	var all [][]byte
	for range 64 {
		b := make([]byte, 8<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	fmt.Println("ate", len(all))
}

// mounted returns the mounts of the host, without those of other tests, which run meanwhile: these
// are in their directories for temporary files.
func mounted(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool {
		return strings.Contains(line, " "+os.TempDir()+"/") && !strings.Contains(line, t.Name())
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
