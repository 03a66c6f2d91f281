package realrobot

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/testkit"
)

// Machine is a robot whose power can be cut: its agent, its shims and all tasks end at once. Each boot has a pid
// namespace, which the kernel kills with its first process, a boot id, and a clock that starts at 0.
type Machine struct {
	*Robot
	bootDir string
	boots   int
}

// NewMachine returns the machine of a robot, which has not booted yet.
func NewMachine(t testing.TB, r *Robot) *Machine { return &Machine{Robot: r, bootDir: t.TempDir()} }

// bootScript shows the boot id in the file $0 to the command that follows.
const bootScript = `mount --bind "$0" /proc/sys/kernel/random/boot_id && "$@" & wait`

// bootCommand returns the command that runs another one as in a boot with the id in a file.
func bootCommand(bootIDFile string) []string {
	offset := strconv.FormatInt(-int64(shim.SinceBoot().Seconds()), 10)
	return []string{
		"unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--time", "--boottime", offset, "--", "sh", "-c", bootScript, bootIDFile,
	}
}

// RequirePower skips a test that has no right to cut the power of a machine.
func RequirePower(t testing.TB) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(file, []byte("probe\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := append(bootCommand(file), "grep", "-q", "probe", "/proc/sys/kernel/random/boot_id")
	if text, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Skipf("namespaces of processes, mounts and clocks need root: %v: %s", err, text)
	}
}

// Boot starts the agent in another boot.
func (m *Machine) Boot() { m.Start(m.NextBoot()...) }

// NextBoot returns the command that starts the agent in another boot.
func (m *Machine) NextBoot() []string {
	m.boots++
	file := filepath.Join(m.bootDir, strconv.Itoa(m.boots))
	if err := os.WriteFile(file, fmt.Appendf(nil, "%08x-0000-4000-8000-%012x\n", os.Getpid(), m.boots), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return bootCommand(file)
}

// maxCutTime bounds the wait for the first process of a boot that has just begun.
const maxCutTime = time.Minute

// CutPower ends all processes of the machine at once, and returns when they are gone.
func (m *Machine) CutPower() {
	m.t.Helper()
	testkit.Eventually(m.t, maxCutTime, "the first process of the boot is there", func() bool {
		first, err := m.firstProcess()
		return err == nil && syscall.Kill(first, syscall.SIGKILL) == nil
	})
	m.StopWithSignal(0) // it waits
}

// firstProcess returns the process with which the boot ends.
func (m *Machine) firstProcess() (pid int, err error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.PID()))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(children)))
}

// HasProcess reports whether a process of a task runs.
func (m *Machine) HasProcess(uid string) bool {
	for what := range m.LiveProcesses() {
		env, err := os.ReadFile(filepath.Join("/proc", what, "environ"))
		if err == nil && bytes.Contains(env, []byte("K8S4R_TASK_UID="+uid+"\x00")) {
			return true
		}
	}
	return false
}
