package testkit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test starts, kills and restarts. It is killed for good when the test
// ends, which an interrupt may do while the test still uses it; if the test failed, the end of its
// log is shown.
type Process struct {
	Args []string

	t       testing.TB
	logPath string

	mu       sync.Mutex // guards the fields below
	cmd      *exec.Cmd  // nil if it does not run
	await    func()     // waits for the exit of cmd, and may be called more than once
	hasEnded bool       // the test: it is not started again
}

// NewProcess returns a program that is not started yet.
func NewProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{Args: args, t: t, logPath: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		p.endTest()
		p.Kill()
		p.unmountTaskDirs()
		if t.Failed() {
			text := p.ReadLog()
			t.Logf("end of the log of %s:\n%s", strings.Join(p.Args, " "), text[max(0, len(text)-4<<10):])
		}
	})
	return p
}

// unmountTaskDirs unmounts what an agent leaves in its state directory when it is killed.
func (p *Process) unmountTaskDirs() {
	for i, arg := range p.Args {
		dir, ok := strings.CutPrefix(arg, "--state-dir=")
		if arg == "--state-dir" && i+1 < len(p.Args) {
			dir, ok = p.Args[i+1], true
		}
		if ok {
			UnmountTaskDirs(p.t, dir)
		}
	}
}

func (p *Process) endTest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hasEnded = true
}

// Start starts the program, if necessary through another one such as strace. After the end of the
// test it does nothing.
func (p *Process) Start(through ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasEnded {
		return
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	args := slices.Concat(through, p.Args)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.await = cmd, sync.OnceFunc(func() { _ = cmd.Wait() })
}

// Kill sends SIGKILL and waits for the exit.
func (p *Process) Kill() { p.StopWithSignal(syscall.SIGKILL) }

// Stop sends SIGTERM and waits for the exit.
func (p *Process) Stop() { p.StopWithSignal(syscall.SIGTERM) }

// StopWithSignal sends a signal and waits for the exit. It does nothing if the program does not
// run.
func (p *Process) StopWithSignal(with syscall.Signal) {
	p.mu.Lock()
	cmd, await := p.cmd, p.await
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(with)
	await()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == cmd {
		p.cmd = nil
	}
}

// Signal sends a signal to the program if it runs.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// PID returns the process id of the program, or 0 if it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// HasExited reports whether the program has exited on its own, or does not run.
func (p *Process) HasExited() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// ReadLog returns the output of the program since NewProcess, across restarts.
func (p *Process) ReadLog() []byte {
	text, _ := os.ReadFile(p.logPath)
	return text
}

// Mosquitto is a broker of Debian's package.
type Mosquitto struct {
	*Process
	// Addr does not change when the broker restarts.
	Addr string
}

// NewMosquitto starts a broker without TLS on a free local port.
func NewMosquitto(t testing.TB) *Mosquitto {
	t.Helper()
	return startMosquitto(t, "allow_anonymous true\n")
}

func startMosquitto(t testing.TB, settings string) *Mosquitto {
	t.Helper()
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "mosquitto.conf")
	text := fmt.Sprintf("listener %s 127.0.0.1\npersistence false\n%s", port, settings)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Mosquitto{NewProcess(t, FindMosquitto(), "-c", conf), addr}
	m.Start()
	return m
}

// Start starts the broker and returns once it listens.
func (m *Mosquitto) Start() {
	m.t.Helper()
	m.Process.Start()
	Eventually(m.t, 10*time.Second, "mosquitto listens (make deps installs it)", func() bool {
		c, err := net.DialTimeout("tcp", m.Addr, time.Second)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// URL returns the MQTT URL of the broker.
func (m *Mosquitto) URL() string { return "mqtt://" + m.Addr }

// FreeAddr returns ports below the ephemeral range of the kernel, so that outgoing connections
// cannot take the port while a program restarts.
const (
	firstPort = 12_000
	portCount = 18_000
)

var lastPort atomic.Uint32

// FreeAddr returns a local address with a port that is not in use. Test programs that run in
// parallel start at different ports.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := firstPort + (uint32(os.Getpid())*131+lastPort.Add(1))%portCount
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port in a hundred tries")
	return ""
}
