package testkit

import (
	"syscall"
	"testing"
)

// startSleep starts a program that exits only if it is killed.
func startSleep(t testing.TB) *Process {
	t.Helper()
	p := NewProcess(t, "sleep", "600")
	p.Start()
	return p
}

func TestProcess_IsNotStartedAgainAfterItsTest(t *testing.T) {
	var p *Process
	t.Run("its test", func(t *testing.T) { p = startSleep(t) })
	p.Start()
	p.Signal(syscall.SIGCONT)
	if pid := p.PID(); pid != 0 || !p.HasExited() {
		t.Errorf("process %d runs", pid)
	}
}

func TestProcess_IsStoppedByTwoAtOnce(t *testing.T) {
	p := startSleep(t)
	stopped := make(chan struct{})
	go func() { p.StopWithSignal(0); close(stopped) }() // only waits
	p.Kill()
	<-stopped
	if p.Start(); p.HasExited() {
		t.Error("it cannot be started again")
	}
}
