package testkit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Up is a running `k8s4r up`, a process of its own.
type Up struct {
	// DataDir survives a restart.
	DataDir string
	// Kubeconfig is the path of the admin's.
	Kubeconfig string `json:"kubeconfig"`
	// Server is the URL of the API server. It stays the same through restarts.
	Server string `json:"server"`
	// MQTTURL of the embedded broker, or of the one that it was given. It stays
	// the same through restarts.
	MQTTURL string `json:"mqttURL"`
	// MQTTSURL is where robots find the embedded broker who prove themselves, and
	// JoinURL where they join. Both stay the same through restarts.
	MQTTSURL string `json:"mqttsURL"`
	JoinURL  string `json:"joinURL"`
	// MetricsURL serves what manager and server count. Empty: nobody does,
	// unless --metrics-address asks for it.
	MetricsURL string `json:"metricsURL"`
	// ConsoleURL serves the console, and stays the same through restarts.
	ConsoleURL string `json:"consoleURL"`

	t      testing.TB
	args   []string
	strict bool
	uid    uint32 // zero: the test's own
	cmd    *exec.Cmd
	exited chan error
	out    *tail
}

// StartUp starts `k8s4r up` with ports that are free and a directory of its
// own, waits until it is ready, and stops it when the test ends. Flags in args
// come after the defaults and win.
func StartUp(t testing.TB, args ...string) *Up {
	t.Helper()
	return StartUpAs(t, 0, args...)
}

// StartStrictUp is StartUp of a system that lets in only who proves who he is. In the
// others simulated robots, listeners and agents of the document take part.
func StartStrictUp(t testing.TB, args ...string) *Up {
	t.Helper()
	return startUp(t, 0, true, args...)
}

// open are the flags that let everybody in.
func (u *Up) open() []string {
	if u.strict {
		return nil
	}
	return []string{"--allow-legacy-agents", "--allow-anonymous-agents", "--mqtt-address", "127.0.0.1:" + port(u.MQTTURL)}
}

// StartUpAs is StartUp as another user, which takes root. Zero: the test's own.
func StartUpAs(t testing.TB, uid uint32, args ...string) *Up {
	t.Helper()
	return startUp(t, uid, false, args...)
}

func startUp(t testing.TB, uid uint32, strict bool, args ...string) *Up {
	t.Helper()
	// Unix sockets live in there, whose paths may not be long.
	dir, err := os.MkdirTemp("", "k8s4r-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // tasks of another user pass through it
		t.Fatal(err)
	}
	if uid != 0 {
		if err := os.Chown(dir, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
	}
	u := &Up{DataDir: dir, t: t, args: args, uid: uid, strict: strict}
	t.Cleanup(func() {
		u.Stop()
		if t.Failed() {
			t.Logf("k8s4r up said:\n%s", u.out)
			t.Logf("its data is kept in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	u.Start()
	return u
}

// APIServer starts only the control plane and returns the admin's access to
// it, without client-side limits.
func APIServer(t testing.TB) *rest.Config {
	t.Helper()
	return StartUp(t, "--without", "manager,server,broker,robots,node,console").RESTConfig()
}

// Start starts it again on the same data after Stop or Kill. Flags in more count for
// this start alone.
func (u *Up) Start(more ...string) {
	u.t.Helper()
	args := append([]string{"up", "--data-dir", u.DataDir, "--secure-port", port(u.Server), "--mqtts-address", "127.0.0.1:" + port(u.MQTTSURL),
		"--logs-address", "127.0.0.1:" + port(u.JoinURL), "--metrics-address", "", "--console-address", "127.0.0.1:" + port(u.ConsoleURL)}, slices.Concat(u.open(), u.args, more)...)
	u.out = &tail{}
	u.cmd = exec.Command(Binary(u.t, "k8s4r"), args...)
	u.cmd.Stdout, u.cmd.Stderr = u.out, u.out
	// A test that panics stops nothing, and what it leaves would run on for good.
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if u.uid != 0 {
		u.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.uid}
		u.cmd.Env = append(os.Environ(), "HOME="+u.DataDir)
	}
	state := filepath.Join(u.DataDir, "up.json")
	os.Remove(state) // one that a kill -9 left behind says nothing about this start
	if err := u.cmd.Start(); err != nil {
		u.t.Fatalf("start k8s4r up: %v", err)
	}
	u.exited = make(chan error, 1)
	go func() { u.exited <- u.cmd.Wait() }()
	u.awaitReady(state)
}

// port is the port of the last start, or 0 for a free one.
func port(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Port() == "" {
		return "0"
	}
	return u.Port()
}

func (u *Up) awaitReady(state string) {
	u.t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-u.exited:
			u.exited <- err
			u.t.Fatalf("k8s4r up ended before it was ready: %v\n%s", err, u.out)
		case <-deadline:
			u.t.Fatalf("k8s4r up is not ready after two minutes\n%s", u.out)
		case <-tick.C:
			b, err := os.ReadFile(state)
			if err == nil && json.Unmarshal(b, u) == nil {
				return
			}
		}
	}
}

// Stop stops it in order, and fails the test when that takes a minute.
func (u *Up) Stop() {
	u.t.Helper()
	if u.cmd == nil {
		return
	}
	u.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-u.exited:
	case <-time.After(time.Minute):
		u.cmd.Process.Kill()
		<-u.exited
		u.t.Errorf("k8s4r up did not stop within a minute\n%s", u.out)
	}
	u.cmd = nil
}

// Kill ends it with SIGKILL, as a power cut would.
func (u *Up) Kill() {
	u.t.Helper()
	u.cmd.Process.Kill()
	<-u.exited
	u.cmd = nil
}

// PID of the process.
func (u *Up) PID() int { return u.cmd.Process.Pid }

// Said is the end of what the process has written to its user.
func (u *Up) Said() string { return u.out.String() }

// RESTConfig is the admin's access, without client-side limits.
func (u *Up) RESTConfig() *rest.Config {
	u.t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", u.Kubeconfig)
	if err != nil {
		u.t.Fatal(err)
	}
	c.QPS = -1
	return c
}

// Run runs one of the programs to its end against this control plane and
// returns what it printed on both streams.
func (u *Up) Run(program string, args ...string) (string, error) {
	cmd := exec.Command(Binary(u.t, program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.Kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Binary is the path of one of the built programs: in $K8S4R_BIN_DIR, else in
// bin/ of the repository.
func Binary(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("K8S4R_BIN_DIR")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built; make test builds all that tests need: %v", name, err)
	}
	return path
}

// Eventually waits until ok is true and fails the test when that takes longer
// than within.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	EventuallyNoError(t, within, what, func() error {
		if ok() {
			return nil
		}
		return fmt.Errorf("not yet")
	})
}

// busy is how many times as long as an idle machine a busy one may take.
const busy = 3

// EventuallyNoError waits until check returns no error and fails the test with
// its last one when that takes longer than within, which is meant for an idle machine: a
// busy one gets three times as long. It measures no speed.
func EventuallyNoError(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	within *= busy
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tail keeps the end of what a process wrote.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 64 << 10

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	if over := len(w.buf) - tailSize; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.buf)
}

// Lines returns the lines of a text without their ends.
func Lines(text string) []string {
	var lines []string
	for s := bufio.NewScanner(io.Reader(bytes.NewBufferString(text))); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}
