package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

// isolated sets the driver of a task to exec.
func isolated(t *wire.Task) { t.Spec.Driver = "exec" }

// ends runs a task and returns its end, its output and its directory.
func ends(t *testing.T, task wire.Task) (end wire.Status, out, dir string) {
	t.Helper()
	s, dir := newFakeServer(t), t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o711)) // users pass through, as they do where agents live
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(task, 1)
	uid := task.Metadata.UID
	end = s.awaitEnd(uid, 1)
	return end, output(t, dir, uid, 1, record.Stdout), runner.StateDir(dir).WorkDir(uid, 1)
}

func needs(f func(*wire.Resources)) func(*wire.Task) {
	return func(t *wire.Task) {
		t.Spec.Resources = &wire.Resources{}
		f(t.Spec.Resources)
	}
}

func TestExec_IsolatesTheTask(t *testing.T) {
	left := filepath.Join(t.TempDir(), "left")
	end, out, _ := ends(t, shell("t1", `
		[ -e /proc/`+strconv.Itoa(os.Getpid())+` ] || echo own-pids
		touch `+left+` 2>/dev/null || echo read-only
		touch /etc/k8s4r-test 2>/dev/null || echo read-only-etc
		touch /tmp/k8s4r-own-tmp
		ls "$HOME/../shim" >/dev/null 2>&1 || echo hidden
		echo mine > "$HOME/file" && cat "$HOME/file"
		grep NoNewPrivs: /proc/self/status | tr -d '\t'
		mount -t tmpfs none /mnt 2>/dev/null || echo no-mount`, isolated))
	want := "own-pids\nread-only\nread-only-etc\nhidden\nmine\nNoNewPrivs:1\nno-mount\n"
	if end.State != wire.ReportCompleted || out != want {
		t.Errorf("ended as %+v with\n%s\nwant\n%s", end, out, want)
	}
	for _, path := range []string{left, "/tmp/k8s4r-own-tmp"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("the task has written %s", path)
		}
	}
}

func TestExec_ReplicaSharesTmp(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	of := func(index string) func(*wire.Task) {
		return func(t *wire.Task) { isolated(t); t.Metadata.Labels = map[string]string{wire.LabelTaskIndex: index} }
	}
	s.dispatch(shell("t1", "echo hello > /tmp/word", of("0")), 1)
	s.awaitEnd("t1", 1)
	s.dispatch(shell("t2", "cat /tmp/word", of("0")), 1)
	s.dispatch(shell("t3", "ls /tmp/word", of("1")), 1)
	s.awaitEnd("t2", 1)
	s.awaitEnd("t3", 1)
	if mine, other := output(t, dir, "t2", 1, record.Stdout), output(t, dir, "t3", 1, record.Stdout); mine != "hello\n" || other != "" {
		t.Errorf("the same replica reads %q and another one finds %q, want hello and nothing", mine, other)
	}
}

func TestExec_MemoryLimitReportsOOMKilled(t *testing.T) {
	t.Parallel()
	end, _, _ := ends(t, shell("t1", "x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo ${#x}",
		needs(func(r *wire.Resources) { r.Memory = "32Mi" })))
	if end.State != wire.ReportFailed || end.Reason != wire.ReasonOOMKilled || !strings.Contains(end.Message, "resources.memory") {
		t.Errorf("ended as %+v, want failed, OOMKilled", end)
	}
}

// The kernel counts its kills of all indexes of a range together.
func TestExec_MemoryLimitOfARangeIsReportedForItsIndex(t *testing.T) {
	t.Parallel()
	const script = `case $K8S4R_TASK_INDEX in 1) x=$(head -c 200000000 /dev/zero | tr '\0' a); echo ${#x};; 2) exit 1;; esac`
	end, _, _ := ends(t, shell("t1", script, overRange("0-3"), needs(func(r *wire.Resources) { r.Memory = "32Mi" })))
	requireIndexes(t, end, "0,3", "1-2")
	if f := end.Array.Failures; len(f) != 2 || f[0].Reason != wire.ReasonOOMKilled || f[1].Reason != wire.ReasonExited {
		t.Errorf("failures = %+v, want that of index 1 for its memory", f)
	}
}

// To kill all processes of a control group, the agent forbids new ones. The shell that forks ends when it
// may not; the process of the index does not fork.
func TestExec_IndexAfterAForkBombStarts(t *testing.T) {
	t.Parallel()
	script := `[ $K8S4R_TASK_INDEX != 1 ] || { trap '' TERM; (for i in $(seq 1 5000); do sleep 600 & done) 2>errors & wait; exec sleep 600; }; sleep 0.01 & wait`
	end, _, dir := ends(t, shell("t1", script, overRange("0-2"), func(w *wire.Task) {
		w.Spec.Timeout, w.Spec.KillTimeout = wire.Duration(3*time.Second), new(wire.Duration(10*time.Millisecond))
	}))
	requireIndexes(t, end, "0,2", "1")
	if f := end.Array.Failures; len(f) != 1 || f[0].Reason != wire.ReasonTimeout {
		t.Errorf("failures = %+v, want Timeout", f)
	}
	if left := taskProcesses(dir); len(left) > 0 {
		t.Errorf("processes %v are left over", left)
	}
}

func TestExec_LimitsForkBomb(t *testing.T) {
	t.Parallel()
	end, out, dir := ends(t, shell("t1", `
		for i in $(seq 1 5000); do sleep 600 & done 2>errors
		echo unreachable`, func(w *wire.Task) { w.Spec.Timeout = wire.Duration(3 * time.Second) }))
	if end.State != wire.ReportFailed || strings.Contains(out, "unreachable") {
		t.Errorf("ended as %+v with %q, want failed before all are started", end, out)
	}
	waitUntil(t, "its processes to be gone", func() bool { return len(taskProcesses(dir)) == 0 })
}

func TestExec_KillsChildrenThatIgnoreSIGTERM(t *testing.T) {
	t.Parallel()
	kill := wire.Duration(100 * time.Millisecond)
	end, out, _ := ends(t, shell("t1", "trap '' TERM; (trap '' TERM; exec setsid sleep 600) & echo $!; while :; do wait; done", func(w *wire.Task) {
		w.Spec.Timeout, w.Spec.KillTimeout = wire.Duration(3*time.Second), &kill
	}))
	if end.Reason != wire.ReasonTimeout || end.ExitCode != 137 {
		t.Errorf("ended as %+v, want Timeout and 137", end)
	}
	child, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || proc.IsAlive(child) {
		t.Errorf("its child %q lives on (%v)", out, err)
	}
}

func TestUser(t *testing.T) {
	t.Run("another user, which owns the task's directory", func(t *testing.T) {
		for _, driver := range []string{"exec", "raw_exec"} {
			end, out, work := ends(t, shell("t1", "id -un; echo mine > file", func(w *wire.Task) { w.Spec.Driver, w.Spec.User = driver, "nobody" }))
			info, err := os.Stat(filepath.Join(work, "file"))
			must(t, err)
			if end.State != wire.ReportCompleted || out != otherUser+"\n" || info.Sys().(*syscall.Stat_t).Uid != 65534 {
				t.Errorf("%s: ended as %+v with %q", driver, end, out)
			}
		}
	})
	t.Run("an unknown user", func(t *testing.T) {
		end, _, _ := ends(t, shell("t1", "exit 0", func(w *wire.Task) { w.Spec.User = "nosuchuser" }))
		if end.Reason != wire.ReasonStartFailed || !strings.Contains(end.Message, `user: this robot has no "nosuchuser"`) {
			t.Errorf("ended as %+v, want StartFailed that names the user", end)
		}
	})
}

func TestIsolation_Required(t *testing.T) {
	require := func(words ...string) func(*wire.Task) {
		return func(w *wire.Task) { w.Spec.Isolation = &wire.Isolation{Required: words} }
	}
	if end, _, _ := ends(t, shell("t1", "exit 0", isolated, require("memory-limit", "pid-namespace"))); end.State != wire.ReportCompleted {
		t.Errorf("ended as %+v, want completed", end)
	}
	end, _, _ := ends(t, shell("t1", "exit 0", isolated, require("moat")))
	if end.Reason != wire.ReasonRejected || !strings.Contains(end.Message, `isolation.required: this robot does not support moat`) {
		t.Errorf("ended as %+v, want Rejected", end)
	}
}

func TestSetUp_ArtifactsAndTemplates(t *testing.T) {
	content := "#!/bin/sh\necho from the artifact\n"
	sum := sha256.Sum256([]byte(content))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, content) }))
	defer web.Close()
	tool := wire.Artifact{
		GetterSource: web.URL + "/tool", RelativeDest: "bin/", GetterMode: "file",
		GetterOptions: map[string]string{"checksum": "sha256:" + hex.EncodeToString(sum[:]), "perms": "0755"},
	}
	config := wire.Template{EmbeddedTmpl: `{{ env "GREETING" }} {{ meta "site" }} {{ .Task.Name }}`, DestPath: "etc/config"}
	set := func(w *wire.Task) {
		w.Spec.Env, w.Spec.Meta = map[string]string{"GREETING": "hello"}, map[string]string{"site": "hall"}
		w.Spec.Artifacts, w.Spec.Templates = []wire.Artifact{tool}, []wire.Template{config}
	}
	for _, driver := range []string{"exec", "raw_exec"} {
		end, out, _ := ends(t, shell("t1", "bin/tool; cat etc/config; echo; echo ${meta.site}", set, func(w *wire.Task) { w.Spec.Driver, w.Spec.User = driver, "nobody" }))
		if want := "from the artifact\nhello hall main\nhall\n"; end.State != wire.ReportCompleted || out != want {
			t.Errorf("%s: ended as %+v with %q, want %q", driver, end, out, want)
		}
	}

	failing := map[string]func(*wire.Task){
		"artifacts[0] " + web.URL + "/tool: sha256 is": func(w *wire.Task) {
			w.Spec.Artifacts = []wire.Artifact{tool}
			w.Spec.Artifacts[0].GetterOptions = map[string]string{"checksum": "sha256:" + strings.Repeat("0", 64)}
		},
		"templates[0]": func(w *wire.Task) {
			w.Spec.Templates = []wire.Template{{EmbeddedTmpl: `{{ env "NONE" }}`, DestPath: "x"}}
		},
		"config.execConfig.args[1]: ${meta.none} is not known": func(w *wire.Task) { w.Spec.Config.Exec.Args[1] = "echo ${meta.none}" },
	}
	for want, change := range failing {
		end, _, work := ends(t, shell("t1", "exit 0", change))
		if end.Reason != wire.ReasonStartFailed || !strings.Contains(end.Message, want) {
			t.Errorf("ended as %+v, want StartFailed with %q", end, want)
		}
		if files, _ := os.ReadDir(work); len(files) > 0 {
			t.Errorf("%s: %v are left behind", want, files)
		}
	}
}

// A set-up may take long, so it can be stopped like a task.
func TestSetUp_CanBeStopped(t *testing.T) {
	asked, done := make(chan struct{}), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	defer web.Close()
	defer close(done)
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exit 0", func(w *wire.Task) { w.Spec.Artifacts = []wire.Artifact{{GetterSource: web.URL + "/slow"}} }), 1)
	<-asked
	s.remove("t1", 1)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonStopped || end.StartedAt != nil {
		t.Errorf("ended as %+v, want Stopped before it was started", end)
	}
}

func TestTemplate_ChangeModes(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	dispatch := func(task wire.Task, site string) {
		s.publish(wire.KindDispatch, wire.Dispatch{
			Action: wire.ActionCreate, Task: task, Attempt: 1, Epoch: 9, Robot: &wire.RobotAttributes{Labels: map[string]string{"site": site}},
		}, false)
	}
	task := func(uid, mode, signal string) wire.Task {
		return shell(uid, `trap 'cat config' USR1; trap 'exit 3' TERM; cat config; while :; do sleep 0.01; done`, isolated, func(w *wire.Task) {
			w.Spec.Templates = []wire.Template{{EmbeddedTmpl: "{{ label \"site\" }}\n", DestPath: "config", ChangeMode: mode, ChangeSignal: signal}}
		})
	}
	restart, signal, noop := task("t1", "", ""), task("t2", "signal", "SIGUSR1"), task("t3", "noop", "")
	all := map[string]wire.Task{"t1": restart, "t2": signal, "t3": noop}
	for uid, task := range all {
		dispatch(task, "hall")
		waitUntil(t, uid+" to read its config", func() bool { return output(t, dir, uid, 1, record.Stdout) == "hall\n" })
	}
	for uid, task := range all {
		dispatch(task, "hall") // no change
		dispatch(task, "yard")
		_ = uid
	}
	again := s.await("t1", 1, "the second run", func(r wire.Status) bool { return r.Run == 2 && r.Reason == "" })
	if first := again.Runs[0]; first.Reason != wire.ReasonTemplateChanged || first.ExitCode != 3 {
		t.Errorf("the first run ended as %+v, want TemplateChanged", first)
	}
	waitUntil(t, "the second run to read its config", func() bool { return output(t, dir, "t1", 1, record.Stdout) == "hall\nyard\n" })
	waitUntil(t, "the signal to arrive", func() bool { return output(t, dir, "t2", 1, record.Stdout) == "hall\nyard\n" })
	config := filepath.Join(runner.StateDir(dir).WorkDir("t3", 1), "config")
	waitUntil(t, "the file to be rendered again", func() bool { b, _ := os.ReadFile(config); return string(b) == "yard\n" })
	for _, uid := range []string{"t2", "t3"} {
		for _, r := range s.reportsAbout(uid, 1) {
			if r.IsTerminal() {
				t.Errorf("%s ended as %+v", uid, r)
			}
		}
	}
	bad := task("t4", "signal", "SIGNONSENSE")
	dispatch(bad, "hall")
	if end := s.awaitEnd("t4", 1); end.Reason != wire.ReasonRejected || !strings.Contains(end.Message, "templates[0].changeSignal") {
		t.Errorf("ended as %+v, want Rejected", end)
	}
}

func TestOutputs(t *testing.T) {
	end, _, _ := ends(t, shell("t1", `
		echo "distance=1" >> $K8S4R_OUTPUTS; echo "secret=2" >> $K8S4R_OUTPUTS; echo "malformed" >> $K8S4R_OUTPUTS
		echo "distance=4.2 = far" >> $K8S4R_OUTPUTS`, func(w *wire.Task) { w.Spec.Outputs = []string{"distance", "angle"} }))
	if len(end.Outputs) != 1 || end.Outputs["distance"] != "4.2 = far" {
		t.Errorf("outputs = %v, want the last distance alone", end.Outputs)
	}
	end, _, _ = ends(t, shell("t1", "ln -s /etc/hostname $K8S4R_OUTPUTS", func(w *wire.Task) { w.Spec.Outputs = []string{"distance"} }))
	if end.State != wire.ReportCompleted || len(end.Outputs) != 0 {
		t.Errorf("ended as %+v, want no outputs of what the file links to", end)
	}
}

func TestPorts(t *testing.T) {
	end, out, _ := ends(t, shell("t1", `echo "$K8S4R_PORT_HTTP $K8S4R_PORT_ROS_BRIDGE"`, needs(func(r *wire.Resources) {
		r.Networks = []wire.Network{{Ports: []wire.Port{{Name: "http", Port: 8080}, {Name: "ros-bridge"}}}}
	})))
	var fixed, free int
	if _, err := fmt.Sscan(out, &fixed, &free); err != nil || fixed != 8080 || free < 1024 || end.State != wire.ReportCompleted {
		t.Errorf("ended as %+v with %q, want 8080 and a free port", end, out)
	}
}

func TestExec_LeavesNothingOnTheHost(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	a := startAgent(t, s.config(dir))
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exit 0", isolated), 1)
	s.awaitEnd("t1", 1)
	waitUntil(t, "its control group to be gone", func() bool {
		_, err := a.host.Tree.Open("t1-1")
		return err != nil
	})
	a.stop() // the agent has mounts of its own
	mounts, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	if strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	if len(a.host.Missing) > 0 {
		t.Logf("this host does not support %+v", a.host.Missing)
	}
	if !a.host.Allows(isolation.FactCgroup) {
		t.Error("this host has no control groups, and the tests of limits mean nothing")
	}
}
