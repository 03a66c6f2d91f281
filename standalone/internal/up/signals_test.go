package up

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestUntilSignal_SecondSignalExits(t *testing.T) {
	exited := make(chan int, 1)
	ctx, release := withSignals(t.Context(), func(code int) { exited <- code })
	defer release()

	raise(t, syscall.SIGINT)
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the first signal did not end the context")
	}
	select {
	case code := <-exited:
		t.Fatalf("the first signal ended the process with %d", code)
	default:
	}

	raise(t, syscall.SIGTERM)
	select {
	case code := <-exited:
		if want := 128 + int(syscall.SIGTERM); code != want {
			t.Errorf("exit status %d, want %d", code, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the second signal did not end the process")
	}
}

func raise(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}
