package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAdopt_ReapsShimThatEndedBetweenTwoVersions adopts a shim that the version before has started in this
// process, and that has exited since. Otherwise it would stay a zombie as long as the agent runs.
func TestAdopt_ReapsShimThatEndedBetweenTwoVersions(t *testing.T) {
	dir, ended := t.TempDir(), exec.Command("/bin/true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	pid := ended.Process.Pid
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	state := fmt.Sprintf(`{"v":2,"shim":{"pid":%d,"startTicks":1},"exit":{"code":3}}`+"\n", pid)
	if err := os.WriteFile(filepath.Join(dir, "state"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	sup, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer sup.Close()
	if s, got, err := sup.Adopt(dir); s != nil || err != nil || got.Exit == nil || got.Exit.Code != 3 {
		t.Errorf("adopted %+v with state %+v, %v", s, got, err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("the process is a zombie still: %v", err)
	}
}
