package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unified returns a tree of cgroup v2, with or without controllers. It returns nil if v2 is not
// writable on this host. A host without v1 must have reported that.
func unified(t *testing.T) *Tree {
	t.Helper()
	h, err := findHierarchies()
	if err != nil || h.v2 == "" {
		if len(h.v1) == 0 && host().Allows(FactCgroup) {
			t.Error("no hierarchy, and yet cgroups are allowed")
		}
		return nil
	}
	tree, err := openV2(h.parentGroup(os.Geteuid()), fmt.Sprintf("test-v2-%d", os.Getpid()))
	if err != nil {
		if unix.Access(h.parentGroup(os.Geteuid()), unix.W_OK) == nil {
			t.Error(err)
		}
		return nil
	}
	t.Cleanup(func() {
		if err := tree.Remove(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

func TestStart_JoinsV2CgroupWithAndWithoutFilter(t *testing.T) {
	tree := unified(t)
	if tree == nil {
		return
	}
	for _, seccomp := range []bool{false, true} {
		t.Run(fmt.Sprintf("seccomp=%v", seccomp), func(t *testing.T) {
			c := newCgroup(t, tree, Limits{})
			out, status := run(t, sh("cat /proc/self/cgroup"), Confinement{Cgroup: c, Seccomp: seccomp})
			if status.ExitStatus() != 0 || !strings.HasSuffix(c.V2, parseOwnPaths(out)[""]) {
				t.Errorf("it is in %q (status %d), want %s", out, status, c.V2)
			}
		})
	}
}

// With v2, the filter needs our own fork, which must do everything that Go's does.
func TestForkFiltered_MatchesForkExec(t *testing.T) {
	tree := unified(t)
	if tree == nil || !allowed(t, FactSeccomp) {
		return
	}
	f := Confinement{Cgroup: newCgroup(t, tree, Limits{}), Seccomp: true}
	there, here := f, Confinement{Seccomp: true}
	if allowed(t, FactUser) {
		u, err := LookupUser("nobody")
		if err != nil {
			t.Fatal(err)
		}
		there.User, here.User = u, u
	}
	c := sh(`pwd; echo $MARK "$@"; id; ps -o sid= -p $$ | grep -c "\b$$\b"; ls /proc/self/fd | wc -l; grep -E 'SigBlk|SigIgn|SigCgt|NoNewPrivs|Seccomp:' /proc/self/status`, "one", "", "three words here")
	c.Dir, c.Env = "/usr", append(c.Env, "MARK=mark")
	want, _ := run(t, c, here)
	if got, status := run(t, c, there); got != want || status.ExitStatus() != 0 {
		t.Errorf("with forkFiltered (status %d)\n%s\nwith ForkExec\n%s", status, got, want)
	}
	dir := t.TempDir()
	writeFile(t, dir+"/garbage", "\x7fnothing")
	for _, tc := range []struct {
		c    Command
		want syscall.Errno
	}{
		{Command{Path: dir + "/none", Args: []string{"x"}}, syscall.ENOENT},
		{Command{Path: dir + "/garbage", Args: []string{"x"}}, syscall.ENOEXEC},
		{Command{Path: dir, Args: []string{"x"}}, syscall.EACCES},
		{Command{Path: "/bin/true", Args: []string{"x"}, Dir: dir + "/none"}, syscall.ENOENT},
		{Command{Path: "/bin/true", Args: []string{"x\x00y"}}, syscall.EINVAL},
		{Command{Path: "/bin/true", Args: []string{strings.Repeat("x", 1<<20)}}, syscall.E2BIG},
	} {
		if _, _, err := Start(tc.c, f); err != error(tc.want) { //nolint:errorlint // the very value is promised
			t.Errorf("%s: %v, want %v", tc.c.Path, err, tc.want)
		}
	}
}

func TestForkFiltered_WorksUnderLoad(t *testing.T) {
	tree := unified(t)
	if tree == nil || !allowed(t, FactSeccomp) {
		return
	}
	f := Confinement{Cgroup: newCgroup(t, tree, Limits{}), Seccomp: true}
	stop := make(chan bool)
	go func() {
		var kept [][]byte
		for {
			select {
			case <-stop:
				return
			default:
				kept = append(kept[len(kept)/2:], make([]byte, 1<<16))
				runtime.GC()
			}
		}
	}()
	defer close(stop)
	for range 50 {
		requireOutput(t, "echo alive", f, "alive")
	}
}

func TestCgroupV2_KillsAllWithoutLimits(t *testing.T) {
	tree := unified(t)
	if tree == nil {
		return
	}
	c := newCgroup(t, tree, Limits{})
	k := start(t, sh("for i in 1 2 3 4 5 6 7 8 9; do setsid sleep 1000 & done; echo ready; read x"), Confinement{Cgroup: c})
	k.line(t)
	if n := len(c.listProcesses()); n < 10 {
		t.Errorf("%d processes are in the group, want 10", n)
	}
	if err := c.Kill(10 * time.Second); err != nil || !c.Empty() {
		t.Errorf("Kill() = %v, and %v are still running", err, c.listProcesses())
	}
	if status := k.wait(t); status.Signal() != syscall.SIGKILL {
		t.Errorf("its leader ended with status %d", status)
	}
}

// A cgroup with processes cannot pass on a controller until they are moved to a leaf. Any
// controller shows that; on a hybrid host hugetlb is available.
func TestEnableControllers_MovesProcessesToLeaf(t *testing.T) {
	tree := unified(t)
	if tree == nil {
		return
	}
	h, _ := findHierarchies()
	top := h.parentGroup(os.Geteuid())
	controllers := slices.DeleteFunc(readWords(top, "cgroup.controllers"), func(c string) bool {
		return !slices.Contains([]string{"hugetlb", memory}, c)
	})
	if len(controllers) == 0 {
		t.Log("no controller of whole processes is here: nothing to hand on")
		return
	}
	controller := controllers[0]
	for _, dir := range []string{top, filepath.Dir(tree.v2), tree.v2} {
		if slices.Contains(readWords(dir, "cgroup.subtree_control"), controller) {
			continue
		}
		if err := delegateController(dir, controller); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := writeControlFile(dir, "cgroup.subtree_control", "-"+controller); err != nil {
				t.Error(err)
			}
		})
	}
	c := newCgroup(t, tree, Limits{}) // last, since it must be removed first
	k := start(t, sh("echo ready; read x; cat /proc/self/cgroup"), Confinement{Cgroup: c})
	k.line(t)
	if err := delegateController(c.V2, controller); err != nil {
		t.Fatal(err)
	}
	if got := readWords(c.V2, "cgroup.subtree_control"); !slices.Equal(got, []string{controller}) {
		t.Errorf("its children get %v, want %s", got, controller)
	}
	fmt.Fprintln(k.in)
	for line := k.line(t); ; line = k.line(t) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			if filepath.Base(group) != leaf {
				t.Errorf("its process is in %s, want it in the leaf", group)
			}
			break
		}
	}
	k.in.Close()
	k.wait(t)
}

// fakeV2 returns a directory with the files that a cgroup has with all controllers.
func fakeV2(t *testing.T, files map[string]string) *Cgroup {
	t.Helper()
	c := &Cgroup{V2: t.TempDir()}
	for name, text := range files {
		writeFile(t, filepath.Join(c.V2, name), text)
	}
	return c
}

func TestCgroupV2_WritesLimits(t *testing.T) {
	files := map[string]string{"cpu.max": "", "cpu.weight": "", "memory.max": "", "memory.swap.max": "", "memory.oom.group": "", "pids.max": ""}
	for _, tc := range []struct {
		name string
		in   Limits
		want map[string]string
	}{
		{"without limits only the default of pids is set", Limits{},
			map[string]string{"cpu.max": "max 100000", "cpu.weight": "100", "memory.max": "", "memory.swap.max": "", "pids.max": "2048"}},
		{"half a core and a memory limit without swap", Limits{CPU: 500, Memory: 1 << 20, PIDs: -1},
			map[string]string{"cpu.max": "50000 100000", "memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "max"}},
		{"values below the kernel's minimum are raised to it", Limits{CPU: 1, CPUWeight: 1, PIDs: 5},
			map[string]string{"cpu.max": "1000 100000", "cpu.weight": "1", "pids.max": "5"}},
		{"twice the share", Limits{CPUWeight: 2000}, map[string]string{"cpu.weight": "200"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fakeV2(t, files)
			if err := c.version().applyLimits(tc.in); err != nil {
				t.Fatal(err)
			}
			for file, want := range tc.want {
				if got := readControlFile(c.V2, file); got != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
		})
	}
	t.Run("a missing controller is skipped", func(t *testing.T) {
		c := fakeV2(t, nil)
		if err := c.version().applyLimits(Limits{CPU: 1000, Memory: 1}); err != nil {
			t.Error(err)
		}
		if made, _ := os.ReadDir(c.V2); len(made) > 0 {
			t.Errorf("it made %v", made)
		}
	})
}

func TestCgroupV2_ReadsUsage(t *testing.T) {
	c := fakeV2(t, map[string]string{
		"cpu.stat":       "usage_usec 1500\nuser_usec 1000\nnr_periods 4\nnr_throttled 3\n",
		"memory.current": "1000\n", "memory.peak": "2000\n", "memory.stat": "anon 600\ninactive_file 300\n",
		"memory.events": "low 0\noom 1\noom_kill 2\noom_group_kill 1\n",
	})
	want := Usage{CPU: 1500 * time.Microsecond, Memory: 700, MemoryPeak: 2000, Throttled: 3}
	if got, err := c.Usage(); got != want || err != nil {
		t.Errorf("Usage() = %+v, %v, want %+v", got, err, want)
	}
	if n, err := c.OOMKills(); n != 2 || err != nil {
		t.Errorf("OOMKills() = %d, %v, want 2", n, err)
	}
}

func TestCgroupV2_UsesCgroupKill(t *testing.T) {
	c := fakeV2(t, map[string]string{"cgroup.kill": "", "pids.max": "9"})
	if err := c.Kill(time.Second); err != nil {
		t.Fatal(err)
	}
	if got := readControlFile(c.V2, "cgroup.kill") + readControlFile(c.V2, "pids.max"); got != "10" {
		t.Errorf("it wrote %q to cgroup.kill and pids.max, want 1 and 0", got)
	}
}

func TestEnableControllers_ReportsRefusedControllers(t *testing.T) {
	if os.Geteuid() == 0 {
		// A directory instead of the file makes the write fail for root, too.
		c := fakeV2(t, map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n"})
		if err := os.Mkdir(filepath.Join(c.V2, "cgroup.subtree_control"), 0o755); err != nil {
			t.Fatal(err)
		}
		err := enableControllers(c.V2)
		for _, controller := range []string{cpu, memory, pids} {
			if err == nil || !strings.Contains(err.Error(), "controller "+controller) {
				t.Errorf("the error does not name %s: %v", controller, err)
			}
		}
	}
	none := fakeV2(t, map[string]string{"cgroup.controllers": "cpuset io\n"})
	if err := enableControllers(none.V2); err != nil {
		t.Errorf("without controllers to delegate: %v", err)
	}
}

func TestOpenV2_UsesDelegatedControllers(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, treeName, "r1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{top, filepath.Dir(dir), dir} {
		writeFile(t, filepath.Join(d, "cgroup.controllers"), "cpu pids\n")
		writeFile(t, filepath.Join(d, "cgroup.subtree_control"), "cpu pids\n")
	}
	tree, err := openV2(top, "r1")
	if err != nil {
		t.Fatal(err)
	}
	if !tree.hasController(cpu) || !tree.hasController(pids) || tree.hasController(memory) {
		t.Errorf("it has %v, want cpu and pids", tree.controllers)
	}
	c, err := tree.groupPath("t1")
	if err != nil || c.V2 != filepath.Join(dir, "t1") {
		t.Errorf("t1 is at %+v, %v", c, err)
	}
	if _, err := tree.Open("t1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open() before Create(): %v", err)
	}
}

// A killed agent leaves its tasks in their cgroups, and may be restarted in another cgroup.
func TestOpenTree_FindsTreeFromAnotherCgroup(t *testing.T) {
	if !allowed(t, FactCgroup) {
		return
	}
	c := newCgroup(t, host().Tree, Limits{})
	cmd := shimCommand(t, order{Command: sh("echo in; read x"), Confinement: Confinement{Cgroup: c}})
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	if c.Empty() {
		t.Error("the process that the shim started is not in the group")
	}
	if err := c.Kill(10 * time.Second); err != nil {
		t.Error(err)
	}
	in.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("the shim ended with %v, want it to report that the task was killed", err)
	}
}
