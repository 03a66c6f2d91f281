package testkit

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestRunProgram_AnInterruptEndsAProgramThatUsesItsProcesses(t *testing.T) {
	done := make(chan struct{})
	status := RunProgram(func(t testing.TB) {
		defer close(done)
		p := startSleep(t)
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		Eventually(t, 10*time.Second, "the process is killed", p.HasExited)
		p.StopWithSignal(0)
	})
	<-done
	if status != StatusInterrupted {
		t.Errorf("exit status %d, want %d", status, StatusInterrupted)
	}
}
