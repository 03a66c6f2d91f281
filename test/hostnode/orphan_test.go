package hostnode

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/testkit"
)

// The node and the shim of a container are killed, and the pod is removed while no node is
// running. The next node kills the remaining processes.
func TestContainers_OrphansAreKilled(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	sys := start(t, 0, "--pod-range", "10.244.82.0/24")
	s := sys.in(t, "orphan")
	s.apply(`
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  hostPID: true
  containers: [{name: c, image: none, command: [sh, -c, 'setsid sleep 4721 & exec sleep 4722']}]
`)
	p := s.await("p", "running", running("c"))
	isRunning := func() bool { return len(processes("sleep\x004721\x00")) == 1 } // in a session of its own
	testkit.Eventually(t, within, "its processes are running", isRunning)
	dir := filepath.Join(sys.DataDir, "node", "pods", string(p.UID))
	state, err := shim.ReadState(filepath.Join(dir, "containers", "c", "0", "shim"))
	if err != nil || state.Shim == nil {
		t.Fatalf("the state of its shim is %+v, %v", state, err)
	}
	t.Cleanup(func() { // otherwise processes of a failed run would disturb the next
		for _, pid := range processes("sleep\x004721\x00") {
			n, _ := strconv.Atoi(pid)
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	})
	s.Kill()
	if err := syscall.Kill(state.Shim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, within, "the shim is gone", func() bool {
		there, err := shim.IsRunning(filepath.Join(dir, "containers", "c", "0", "shim"))
		return err == nil && !there
	})
	if !isRunning() {
		t.Fatal("the container has ended with its shim: no orphans are left to kill")
	}
	s.Start("--without", "node")
	s.connect(t)
	s.remove("p", client.GracePeriodSeconds(0))
	s.Stop()
	s.Start()
	s.connect(t)
	testkit.Eventually(t, within, "nothing is left of the pod", func() bool {
		_, err := os.Stat(dir)
		return err != nil && !isRunning()
	})
	if left := cgroupsOf(p); len(left) > 0 {
		t.Errorf("control groups are left: %v", left)
	}
}

func cgroupsOf(p *corev1.Pod) (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), string(p.UID)) {
			found = append(found, path)
		}
		return nil
	})
	return found
}
