package testkit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a program that a test starts, kills and starts again. It dies with the
// test, which shows the end of what it said if it fails.
type Process struct {
	Args []string

	t   testing.TB
	cmd *exec.Cmd // nil: it does not run
	log string
}

// NewProcess prepares a program. It does nothing until Start.
func NewProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	p := &Process{Args: args, t: t, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			said := p.Said()
			t.Logf("%s said at last:\n%s", strings.Join(p.Args, " "), said[max(0, len(said)-4<<10):])
		}
	})
	return p
}

// Start starts it, if need be through another program.
func (p *Process) Start(through ...string) {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	args := slices.Concat(through, p.Args)
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// Kill is kill -9.
func (p *Process) Kill() { p.End(syscall.SIGKILL) }

// Stop asks it to end, and waits for that.
func (p *Process) Stop() { p.End(syscall.SIGTERM) }

// End ends it with a signal, if it runs.
func (p *Process) End(with syscall.Signal) {
	if p.cmd == nil {
		return
	}
	p.Signal(with)
	_ = p.cmd.Wait()
	p.cmd = nil
}

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// PID of the process, which runs.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended tells whether it has ended by itself.
func (p *Process) Ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// Said is what it has written so far, in all its lives.
func (p *Process) Said() []byte {
	text, _ := os.ReadFile(p.log)
	return text
}

// Mosquitto is Debian's broker.
type Mosquitto struct {
	*Process
	// Addr stays the same through restarts.
	Addr string
}

// NewMosquitto starts a broker on a free port of this machine.
func NewMosquitto(t testing.TB) *Mosquitto {
	t.Helper()
	bin, err := exec.LookPath("mosquitto")
	if err != nil {
		bin = "/usr/sbin/mosquitto" // not on everyone's PATH
	}
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "mosquitto.conf")
	text := fmt.Sprintf("listener %s 127.0.0.1\nallow_anonymous true\npersistence false\n", port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Mosquitto{NewProcess(t, bin, "-c", conf), addr}
	m.Start()
	return m
}

// Start returns when it listens.
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

// URL is what programs connect to.
func (m *Mosquitto) URL() string { return "mqtt://" + m.Addr }

// FreeAddr is an address of this machine that nobody listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
