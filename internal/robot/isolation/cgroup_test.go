package isolation

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStart_StartsProcessInCgroup(t *testing.T) {
	if !allowed(t, FactCgroup) {
		return
	}
	c := newCgroup(t, host().Tree, Limits{})
	k := start(t, sh("cat /proc/self/cgroup; echo; read x"), Confinement{Cgroup: c})
	var lines []string
	for l := k.line(t); l != ""; l = k.line(t) {
		lines = append(lines, l)
	}
	own := parseOwnPaths(strings.Join(lines, "\n"))
	for controller, dir := range c.V1 {
		if !strings.HasSuffix(dir, own[controller]) || own[controller] == "/" {
			t.Errorf("%s: it is in %s, want %s", controller, own[controller], dir)
		}
	}
	for _, dir := range c.version().listDirs() {
		if procs := readWords(dir, "cgroup.procs"); slices.Contains(procs, strconv.Itoa(os.Getpid())) {
			t.Errorf("%s contains this test among %v: killing the group would kill it", dir, procs)
		}
	}
	if c.Empty() {
		t.Error("Empty() = true of a group with a running process")
	}
	k.in.Close()
	k.wait(t)
	if !c.Empty() {
		t.Error("Empty() = false of a group whose process has exited")
	}
}

func TestCgroup_KillsTaskAboveMemoryLimit(t *testing.T) {
	if !allowed(t, FactMemoryLimit) {
		return
	}
	const limit = 32 << 20
	c := newCgroup(t, host().Tree, Limits{Memory: limit})
	out, status := run(t, self("eat"), Confinement{Cgroup: c})
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with status %d and output %q, want SIGKILL", status, out)
	}
	if n, err := c.OOMKills(); n == 0 || err != nil {
		t.Errorf("OOMKills() = %d, %v", n, err)
	}
	if u, err := c.Usage(); err != nil || u.MemoryPeak == 0 || u.MemoryPeak > limit+1<<20 || u.CPU == 0 {
		t.Errorf("Usage() = %+v, %v", u, err)
	}
}

func TestCgroup_LimitsAndKillsForkBomb(t *testing.T) {
	if !allowed(t, FactPIDsLimit) {
		return
	}
	const limit = 40
	c := newCgroup(t, host().Tree, Limits{PIDs: limit})
	bomb := filepath.Join(t.TempDir(), "bomb")
	// A shell that cannot fork exits, which lets others fork.
	writeFile(t, bomb, "while :; do sh $0 2>/dev/null & done\n")
	k := start(t, sh(`sh $1 & sh $1 & read x`, bomb), Confinement{Cgroup: c})
	hit := func() bool { return readField(pidsDir(c), "pids.events", "max") > 0 }
	for until := time.Now().Add(20 * time.Second); !hit(); {
		if time.Now().After(until) {
			t.Fatal("the bomb did not reach its limit")
		}
	}
	// The kernel's count. A list of processes that come and go may name more.
	n, err := strconv.Atoi(strings.TrimSpace(readControlFile(pidsDir(c), "pids.current")))
	if err != nil || n > limit {
		t.Errorf("%d processes, want at most %d: %v", n, limit, err)
	}
	if err := c.Kill(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if left := c.listProcesses(); len(left) > 0 {
		t.Errorf("%v are still running", left)
	}
	if status := k.wait(t); status.Signal() != syscall.SIGKILL {
		t.Errorf("its leader ended with status %d", status)
	}
}

func TestCgroup_IsUsableAgainWithItsPIDLimit(t *testing.T) {
	if !allowed(t, FactPIDsLimit) {
		return
	}
	c := newCgroup(t, host().Tree, Limits{PIDs: 40})
	limit := c.PIDLimit()
	if err := c.Kill(time.Second); err != nil || limit != "40" {
		t.Fatalf("limit %q, Kill = %v", limit, err)
	}
	if err := c.SetPIDLimit(limit); err != nil {
		t.Fatal(err)
	}
	if out, status := run(t, sh("true & wait; echo forked"), Confinement{Cgroup: c}); status != 0 || out != "forked" {
		t.Errorf("it ended with status %d and output %q", status, out)
	}
	var none *Cgroup
	if got := none.PIDLimit(); got != "" || none.SetPIDLimit("1") != nil {
		t.Errorf("no control group has the limit %q", got)
	}
}

func pidsDir(c *Cgroup) string {
	if c.V2 != "" {
		return c.V2
	}
	return c.V1[pids]
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestCgroup_ThrottlesAtCPULimit(t *testing.T) {
	if !allowed(t, FactCPULimit) {
		return
	}
	const loop = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
	bounded := newCgroup(t, host().Tree, Limits{CPU: 50})
	requireOutput(t, loop, Confinement{Cgroup: bounded}, "")
	if u, _ := bounded.Usage(); u.Throttled == 0 || u.CPU < 5*time.Millisecond {
		t.Errorf("with 50 thousandths of a core: %+v, want it throttled", u)
	}
	t.Run("free", func(t *testing.T) {
		free := newCgroup(t, host().Tree, Limits{CPUWeight: 500})
		requireOutput(t, loop, Confinement{Cgroup: free}, "")
		if u, _ := free.Usage(); u.Throttled != 0 {
			t.Errorf("without a limit: %+v, want it never throttled", u)
		}
	})
}

func TestTree_CreateRejectsCgroupInUse(t *testing.T) {
	if !allowed(t, FactCgroup) {
		return
	}
	c := newCgroup(t, host().Tree, Limits{})
	k := start(t, sh("read x"), Confinement{Cgroup: c})
	if _, err := host().Tree.Create(t.Name(), Limits{}); !errors.Is(err, ErrInUse) {
		t.Errorf("Create() of one in use: %v", err)
	}
	k.in.Close()
	k.wait(t)
	if _, err := host().Tree.Create(t.Name(), Limits{}); err != nil {
		t.Errorf("Create() after its end: %v", err)
	}
	if u, err := c.Usage(); err != nil || u.CPU != 0 {
		t.Errorf("the new one has the figures of the old: %+v, %v", u, err)
	}
}

func TestTree_OpenFindsCgroupOfEarlierAgent(t *testing.T) {
	if !allowed(t, FactCgroup) {
		return
	}
	c := newCgroup(t, host().Tree, Limits{})
	k := start(t, sh("read x"), Confinement{Cgroup: c})
	found, err := host().Tree.Open(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Kill(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if status := k.wait(t); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with status %d", status)
	}
	if _, err := host().Tree.Open("never-made"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open() of none: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", ".hidden"} {
		if _, err := host().Tree.Create(name, Limits{}); err == nil {
			t.Errorf("Create(%q) works", name)
		}
	}
}

func TestTree_SweepKillsUnknownTasks(t *testing.T) {
	if !allowed(t, FactCgroup) {
		return
	}
	known := newCgroup(t, host().Tree, Limits{})
	stray, err := host().Tree.Create("stray", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	k := start(t, sh("read x"), Confinement{Cgroup: known})
	s := start(t, sh("trap '' TERM; sleep 1000 & echo ready; read x"), Confinement{Cgroup: stray})
	s.line(t)
	for _, dir := range stray.version().listDirs() { // as a task that is root could
		if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	swept, err := host().Tree.Sweep(func(name string) bool { return name == t.Name() }, 10*time.Second)
	if err != nil || !slices.Equal(swept, []string{"stray"}) {
		t.Errorf("Sweep() = %v, %v", swept, err)
	}
	if status := s.wait(t); status.Signal() != syscall.SIGKILL {
		t.Errorf("the stray ended with status %d", status)
	}
	if err := stray.checkExists(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stray's group is left: %v", err)
	}
	if known.Empty() || hasEnded(k.pidfd, 0) {
		t.Error("the known task was swept")
	}
}

func TestCgroup_RemovedCgroupIsNoError(t *testing.T) {
	gone := &Cgroup{V2: filepath.Join(t.TempDir(), "gone")}
	if err := errors.Join(gone.Kill(time.Second), gone.Remove()); err != nil || !gone.Empty() {
		t.Errorf("Kill and Remove: %v", err)
	}
	if _, err := gone.Usage(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Usage: %v", err)
	}
	if _, err := gone.OOMKills(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OOMKills: %v", err)
	}
	for _, none := range []*Cgroup{nil, {}} {
		u, err := none.Usage()
		if err = errors.Join(err, none.Kill(time.Second), none.Remove()); err != nil || u != (Usage{}) || !none.Empty() {
			t.Errorf("of no group: %+v, %v", u, err)
		}
		requireOutput(t, "echo runs", Confinement{Cgroup: none}, "runs")
	}
	_, _, err := Start(sh("true"), Confinement{Cgroup: &Cgroup{V1: map[string]string{memory: gone.V2}}})
	if setup, ok := errors.AsType[*SetupError](err); !ok || errors.Is(err, unix.ENOENT) {
		t.Errorf("Start: %v (%+v), want a SetupError that is not taken for a missing command", err, setup)
	}
}
