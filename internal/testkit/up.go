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

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// Up is a running `k8s4r up` process.
type Up struct {
	// DataDir survives a restart.
	DataDir string
	// Kubeconfig is the path of the admin's kubeconfig.
	Kubeconfig string `json:"kubeconfig"`
	// Server is the URL of the API server. It does not change at a restart.
	Server string `json:"server"`
	// MQTTURL is the URL of the broker without TLS: of the embedded one of StartLegacyUp, or of the
	// configured one. It does not change at a restart.
	MQTTURL string `json:"mqttURL"`
	// MQTTSURL is the URL of the embedded broker for authenticated agents, and JoinURL the
	// one where agents join. Both do not change at a restart.
	MQTTSURL string `json:"mqttsURL"`
	JoinURL  string `json:"joinURL"`
	// MetricsURL serves the metrics of manager and server. It is empty unless
	// --metrics-address is set.
	MetricsURL string `json:"metricsURL"`
	// ProfileURL serves the profiles of the process. It is empty unless --profile is set.
	ProfileURL string `json:"profileURL"`
	// ConsoleURL is the URL of the console. It does not change at a restart.
	ConsoleURL string `json:"consoleURL"`

	t             testing.TB
	args          []string
	acceptsLegacy bool   // and anonymous agents
	isNew         bool   // its data directory is not filled from the template
	uid           uint32 // 0 means the user of the test
	cmd           *exec.Cmd
	exited        chan error
	out           *tail
}

// StartUp starts `k8s4r up` with free ports and its own directory, waits until it is ready, and
// stops it when the test ends. Robots need a certificate (JoinFlags, JoinRobot). Flags in args
// override the defaults.
func StartUp(t testing.TB, args ...string) *Up {
	t.Helper()
	return startUp(t, &Up{args: args})
}

// StartLegacyUp is StartUp for a system that also accepts anonymous and legacy agents.
func StartLegacyUp(t testing.TB, args ...string) *Up {
	t.Helper()
	return startUp(t, &Up{args: args, acceptsLegacy: true})
}

// legacyFlags returns the flags that accept anonymous and legacy agents.
func (u *Up) legacyFlags() []string {
	if !u.acceptsLegacy {
		return nil
	}
	return []string{"--allow-legacy-agents", "--allow-anonymous-agents", "--mqtt-address", "127.0.0.1:" + portOf(u.MQTTURL)}
}

// StartNewUp is StartUp with an empty data directory, for tests of what only a first start does.
func StartNewUp(t testing.TB, args ...string) *Up {
	t.Helper()
	return startUp(t, &Up{args: args, isNew: true})
}

// StartUpAs is StartUp as another user, which requires root. 0 means the user of the test.
func StartUpAs(t testing.TB, uid uint32, args ...string) *Up {
	t.Helper()
	return startUp(t, &Up{args: args, uid: uid})
}

func startUp(t testing.TB, u *Up) *Up {
	t.Helper()
	dir := makeDataDir(t)
	if u.uid != 0 {
		if err := os.Chown(dir, int(u.uid), int(u.uid)); err != nil {
			t.Fatal(err)
		}
	}
	u.DataDir, u.t = dir, t
	t.Cleanup(func() {
		u.Stop()
		if t.Failed() {
			t.Logf("output of k8s4r up:\n%s", u.out)
			t.Logf("its data is kept in %s", dir)
			return
		}
		UnmountTaskDirs(t, filepath.Join(dir, "robots", "*"))
		os.RemoveAll(dir)
	})
	startSlots <- struct{}{}
	defer func() { <-startSlots }()
	if u.uid == 0 && !u.isNew {
		fillDataDir(t, dir)
	}
	u.Start()
	return u
}

// makeDataDir makes an empty data directory.
func makeDataDir(t testing.TB) string {
	t.Helper()
	// It holds Unix sockets, whose paths must be short.
	dir, err := os.MkdirTemp("", "k8s4r-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // tasks of other users need access
		t.Fatal(err)
	}
	return dir
}

// UnmountTaskDirs unmounts what a killed agent has left mounted in its state directory, which is a
// pattern. Otherwise the directory cannot be removed.
func UnmountTaskDirs(t testing.TB, stateDir string) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(stateDir, "*"))
	for _, dir := range dirs {
		if err := isolation.UnprotectDir(dir); err != nil {
			t.Error(err)
		}
	}
}

// startSlots bounds how many systems start at the same time: each uses a processor for seconds,
// and more would time out.
var startSlots = make(chan struct{}, runtime.NumCPU())

// KubeconfigOf returns the path of a kubeconfig whose requests are those of a service account in
// k8s4r-system. Admission treats what the manager writes by the name of its account.
func (u *Up) KubeconfigOf(account string) string {
	u.t.Helper()
	c, err := clientcmd.LoadFromFile(u.Kubeconfig)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, user := range c.AuthInfos {
		user.Impersonate = "system:serviceaccount:k8s4r-system:" + account
	}
	path := filepath.Join(u.DataDir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// ControlPlaneOnly are flags of a system without the programs of K8s4r.
var ControlPlaneOnly = []string{"--without", "manager,server,broker,robots,node,console"}

// Start starts the process again with the same data after Stop or Kill. The flags in more apply
// to this start only.
func (u *Up) Start(more ...string) {
	u.t.Helper()
	args := append([]string{"up", "--data-dir", u.DataDir, "--secure-port", portOf(u.Server), "--mqtts-address", "127.0.0.1:" + portOf(u.MQTTSURL),
		"--logs-address", "127.0.0.1:" + portOf(u.JoinURL), "--metrics-address", "", "--console-address", "127.0.0.1:" + portOf(u.ConsoleURL)}, slices.Concat(u.legacyFlags(), u.args, more)...)
	u.out = &tail{}
	u.cmd = exec.Command(BinaryPath(u.t, "k8s4r"), args...)
	u.cmd.Stdout, u.cmd.Stderr = u.out, u.out
	// Otherwise the process would survive a test that panics.
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if u.uid != 0 {
		u.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.uid}
		u.cmd.Env = append(os.Environ(), "HOME="+u.DataDir)
	}
	state := filepath.Join(u.DataDir, "up.json")
	if err := u.cmd.Start(); err != nil {
		u.t.Fatalf("start k8s4r up: %v", err)
	}
	u.exited = make(chan error, 1)
	go func() { u.exited <- u.cmd.Wait() }()
	u.awaitReady(state)
}

// portOf returns the port of a URL, or "0" (any free port) if there is none.
func portOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Port() == "" {
		return "0"
	}
	return u.Port()
}

// startTimeout is long for a machine on which other suites run at the same time.
const startTimeout = 5 * time.Minute

func (u *Up) awaitReady(state string) {
	u.t.Helper()
	deadline := time.After(startTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-u.exited:
			u.exited <- err
			u.t.Fatalf("k8s4r up exited before it was ready: %v\n%s", err, u.out)
		case <-deadline:
			u.t.Fatalf("k8s4r up is not ready after %s\n%s", startTimeout, u.out)
		case <-tick.C:
			if u.readState(state) {
				return
			}
		}
	}
}

// readState reads the addresses from up.json, and reports whether the file is of the process. One that
// was killed has left its own.
func (u *Up) readState(file string) bool {
	b, err := os.ReadFile(file)
	var written struct {
		PID int `json:"pid"`
	}
	return err == nil && json.Unmarshal(b, &written) == nil && written.PID == u.cmd.Process.Pid && json.Unmarshal(b, u) == nil
}

// Stop sends SIGTERM and fails the test if the process runs for another minute.
func (u *Up) Stop() {
	u.t.Helper()
	if u.cmd != nil {
		_ = u.Terminate()
	}
}

// Terminate is Stop, and returns an error if the exit code is not 0.
func (u *Up) Terminate() (err error) {
	u.t.Helper()
	u.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err = <-u.exited:
	case <-time.After(time.Minute):
		u.cmd.Process.Kill()
		err = <-u.exited
		u.t.Errorf("k8s4r up did not stop within a minute\n%s", u.out)
	}
	u.cmd = nil
	return err
}

// Kill sends SIGKILL, which is like a power failure.
func (u *Up) Kill() {
	u.t.Helper()
	u.cmd.Process.Kill()
	<-u.exited
	u.cmd = nil
}

// PID returns the process id.
func (u *Up) PID() int { return u.cmd.Process.Pid }

// OutputTail returns the end of the output of the process.
func (u *Up) OutputTail() string { return u.out.String() }

// RESTConfig returns the admin's client configuration without client-side limits.
func (u *Up) RESTConfig() *rest.Config {
	u.t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", u.Kubeconfig)
	if err != nil {
		u.t.Fatal(err)
	}
	c.QPS = -1
	return c
}

// RunProgram runs one of the programs with the admin's kubeconfig to its end and returns its
// combined output.
func (u *Up) RunProgram(program string, args ...string) (string, error) {
	cmd := exec.Command(BinaryPath(u.t, program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.Kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// BinaryPath returns the path of a built program in $K8S4R_BIN_DIR, or by default in bin/ of the
// repository.
func BinaryPath(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("K8S4R_BIN_DIR")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "bin")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built; run make build: %v", name, err)
	}
	return path
}

// Eventually waits until ok returns true and fails the test after the timeout within.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	EventuallyNoError(t, within, what, func() error {
		if ok() {
			return nil
		}
		return fmt.Errorf("not yet")
	})
}

// slowMachineFactor extends timeouts, so that tests pass on a busy machine.
const slowMachineFactor = 3

// EventuallyNoError waits until check returns nil. It fails the test with the last error after
// slowMachineFactor times within, which is the timeout for an idle machine.
func EventuallyNoError(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	within *= slowMachineFactor
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

// tail is an io.Writer that keeps the last tailSize bytes.
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

// SplitLines returns the lines of a text without line ends.
func SplitLines(text string) []string {
	var lines []string
	for s := bufio.NewScanner(io.Reader(bytes.NewBufferString(text))); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}
