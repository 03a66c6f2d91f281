package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/diagnose"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// A task of root must not leave a program behind that makes root of any user of the robot.
func TestTaskDirs_SetuidProgramsAndDevicesHaveNoEffect(t *testing.T) {
	s, dir := newFakeServer(t), openDir(t)
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	leaves := `for d in "$HOME" "$K8S4R_ALLOC_DIR"; do
		cp "$(command -v id)" "$d/id" && chmod 4755 "$d/id" && mknod "$d/null" c 1 3 && chmod 666 "$d/null" && chmod o+x "$d" && echo "$d"
	done`
	s.dispatch(shell("t1", leaves, func(w *wire.Task) {
		w.Spec.User, w.Spec.EphemeralDisk = "root", &wire.EphemeralDisk{}
	}), 1)
	if end := s.awaitEnd("t1", 1); end.State != wire.ReportCompleted {
		t.Fatalf("ended as %+v", end)
	}
	disks, err := filepath.Glob(filepath.Join(dir, "disk", "*"))
	must(t, err)
	for _, d := range append(disks, runner.StateDir(dir).WorkDir("t1", 1)) {
		id := exec.Command(filepath.Join(d, "id"), "-u")
		id.Dir, id.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := id.CombinedOutput(); err != nil || string(out) != "65534\n" {
			t.Errorf("%s runs with uid %q, %v", id.Path, out, err)
		}
		f, err := os.Open(filepath.Join(d, "null"))
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("the device in %s is opened: %v", d, err)
			_ = f.Close()
		}
	}
	if len(disks) != 1 {
		t.Errorf("the replica has the disks %q", disks)
	}
	if e, _ := diagnosis(t, dir, s.addr); len(e.about("task directories")) != 1 || e.level("task directories") != diagnose.OK {
		t.Errorf("doctor finds %+v", e.about("task directories"))
	}
	a.stop()
	for _, d := range runner.StateDir(dir).TaskDirs() {
		if isolation.IsProtected(d) {
			t.Errorf("%s is still mounted without an agent and tasks", d)
		}
	}
}

// An agent in a container, or one that is not root, may not mount. It works, and doctor explains
// what does not hold.
func TestTaskDirs_AgentThatMayNotMount(t *testing.T) {
	s, dir := newFakeServer(t), openDir(t)
	agent := agentProcess(t, s, dir)
	agent.Args = append([]string{"setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"}, agent.Args...)
	path, err := exec.LookPath("setpriv")
	must(t, err)
	agent.Path = path
	must(t, agent.Start())
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exit 0"), 1)
	if end := s.awaitEnd("t1", 1); end.State != wire.ReportCompleted {
		t.Errorf("ended as %+v", end)
	}
	e, _ := diagnosis(t, dir, s.addr)
	found := e.about("task directories")
	if len(found) != 1 || found[0].Level != diagnose.Warn || !strings.Contains(found[0].Message, "setuid") || found[0].Remedy == "" {
		t.Errorf("doctor finds %+v", found)
	}
}
