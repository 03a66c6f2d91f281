package e2e

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/testkit"
)

// updateFixture is a robot whose agent is updated while a task runs.
type updateFixture struct {
	*system
	key    ed25519.PrivateKey
	policy string
	dir    string // with the programs and their manifests
	marker string // file with the process of the task
}

// TestAgentUpdate_KeepsTasksRunning updates the agent of a robot to a newer version and back, and to versions that
// do not work, as docs/how-to/update-the-agent.md describes. One process of a task runs all the time.
func TestAgentUpdate_KeepsTasksRunning(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a policy file must belong to root")
	}
	f := newUpdateFixture(t)
	newer, older := f.build("v99.0.1"), f.build("v99.0.0")
	p := agent(t, f.system, "r1", "--heartbeat", "1s", "--policy", f.policy)
	f.awaitRobot("r1", "Online", time.Minute)
	f.create(jobOf("steady", 1, shell("work", "echo $$ >> "+f.marker+"; exec sleep 3600")))
	f.awaitTask("steady-main-0-work", "running", time.Minute)

	t.Run("to a newer version from a file", func(t *testing.T) { f.in(t).updates(newer, newer.program, p.PID()) })
	t.Run("to an older version over HTTP", func(t *testing.T) {
		files := httptest.NewServer(http.FileServer(http.Dir(f.dir)))
		defer files.Close()
		f.in(t).updates(older, files.URL+"/"+filepath.Base(older.program), p.PID())
	})
	t.Run("bad versions", func(t *testing.T) { f.in(t).goesBack(older, newer, p.PID()) })
	t.Run("refused versions", func(t *testing.T) { f.in(t).refuses(newer) })
	t.Run("after a restart", func(t *testing.T) {
		p.Kill()
		agent(t, f.system, "r1", "--heartbeat", "1s", "--policy", f.policy)
		f := f.in(t)
		f.runs(older.version)
		f.taskIsUntouched()
	})
}

func newUpdateFixture(t *testing.T) *updateFixture {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &updateFixture{
		system: start(t, "--robots", "0", "--without", "node,console"), key: private, dir: dir,
		policy: filepath.Join(dir, "policy.yaml"), marker: filepath.Join(dir, "marker"),
	}
	text := "apiVersion: robot.k8s4r.io/v1alpha1\nkind: RobotPolicy\nupdate: {publicKeys: ['" + agentupdate.FormatPublicKey(private) + "']}\n"
	for path, content := range map[string]string{f.policy: text, f.marker: ""} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(f.marker, 0o666); err != nil { // the task has another user
		t.Fatal(err)
	}
	return f
}

// in returns the fixture for a subtest.
func (f *updateFixture) in(t *testing.T) *updateFixture {
	g := *f
	g.system = f.system.in(t)
	return &g
}

// release is a program with its manifest.
type release struct {
	agentupdate.Manifest
	version, program, file string
}

// build builds the agent as a version.
func (f *updateFixture) build(version string) release {
	f.t.Helper()
	program := filepath.Join(f.dir, "k8s4r-agent-"+version)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X k8s4r.io/k8s4r/internal/protocol/version.Version="+version, "-o", program, "k8s4r.io/k8s4r/cmd/k8s4r-agent")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		f.t.Fatalf("build: %v\n%s", err, out)
	}
	return f.sign(version, program, nil)
}

// script returns a program in a language of the shell as a version.
func (f *updateFixture) script(version, text string) release {
	f.t.Helper()
	program := filepath.Join(f.dir, "script-"+version)
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		f.t.Fatal(err)
	}
	return f.sign(version, program, nil)
}

// sign writes the manifest of a program. If change is not nil, it changes the manifest before it is signed.
func (f *updateFixture) sign(version, program string, change func(*agentupdate.Manifest)) release {
	f.t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		f.t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	m := agentupdate.Manifest{Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH, Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}
	if change != nil {
		change(&m)
	}
	return f.write(m.Sign(f.key), version, program)
}

func (f *updateFixture) write(m agentupdate.Manifest, version, program string) release {
	f.t.Helper()
	file, err := os.CreateTemp(f.dir, "manifest-*.json")
	if err == nil {
		_, err = file.Write(m.Encode())
	}
	if err != nil {
		f.t.Fatal(err)
	}
	_ = file.Close()
	return release{m, version, program, file.Name()}
}

// update runs k8s4r-agent update at the robot.
func (f *updateFixture) update(r release, from string) (string, error) {
	return f.atRobot("update", "--manifest", r.file, "--from", from)
}

// updates updates the agent, which stays the same process.
func (f *updateFixture) updates(r release, from string, pid int) {
	out, err := f.update(r, from)
	if err != nil || !strings.Contains(out, "the agent is version "+r.version+" now") {
		f.t.Fatalf("update: %v\n%s", err, out)
	}
	f.runs(r.version)
	if out := f.mustAtRobot("status"); !strings.Contains(out, fmt.Sprintf("process %d,", pid)) {
		f.t.Errorf("the agent is not process %d any more:\n%s", pid, out)
	}
	f.taskIsUntouched()
}

// runs waits until the agent has a version, which the server knows, too.
func (f *updateFixture) runs(version string) {
	f.t.Helper()
	f.awaitAtRobot(`Agent +`+strings.ReplaceAll(version, ".", `\.`)+`, `, "status")
	testkit.EventuallyNoError(f.t, time.Minute, "the Robot shows the version", func() error {
		if info := f.robot("r1").Status.Agent; info == nil || info.Version != version {
			return fmt.Errorf("agent %+v", info)
		}
		return nil
	})
}

// taskIsUntouched checks that one process of the task has run all the time.
func (f *updateFixture) taskIsUntouched() {
	f.t.Helper()
	b, err := os.ReadFile(f.marker)
	if err != nil || strings.Count(string(b), "\n") != 1 || !processIn(f.marker) {
		f.t.Errorf("the task was started as %q and must run: %v", b, err)
	}
	status := f.task("steady-main-0-work").Status
	if status.State != "running" || status.Attempt != 1 || len(status.Attempts) != 1 {
		f.t.Errorf("the task is %+v", status)
	}
}

// goesBack updates to versions that do not work. The version before runs again within 60 s.
func (f *updateFixture) goesBack(now, other release, pid int) {
	for name, c := range map[string]struct {
		release
		reason string
	}{
		"it exits":         {f.script("v1.0.1", "exit 1"), "it ended 3 times before it had passed its self-test"},
		"it exits with 0":  {f.script("v1.0.2", "exit 0"), "it ended 3 times before it had passed its self-test"},
		"it hangs":         {f.script("v1.0.3", "exec sleep 600"), "it did not end its self-test"},
		"another version":  {f.sign("v1.0.4", other.program, nil), "the program is version " + other.version},
		"it is no program": {f.sign("v1.0.5", f.policy, nil), "it cannot be started"},
		"it is killed":     {f.script("v1.0.6", "kill -9 $$"), "it ended 3 times before it had passed its self-test"},
	} {
		began := time.Now()
		out, err := f.update(c.release, c.program)
		if err == nil || !strings.Contains(out, c.reason) || !strings.Contains(out, "the agent is "+now.version+" again") {
			f.t.Errorf("%s: %v\n%s\nwant %s", name, err, out, c.reason)
		}
		if took := time.Since(began); took > time.Minute {
			f.t.Errorf("%s: it took %v to go back", name, took)
		}
		if out := f.mustAtRobot("status"); !strings.Contains(out, c.version+" was given up") || !strings.Contains(out, fmt.Sprintf("process %d,", pid)) {
			f.t.Errorf("%s: status\n%s", name, out)
		}
		f.taskIsUntouched()
	}
	f.runs(now.version)
}

// refuses orders versions that the robot must not even try.
func (f *updateFixture) refuses(good release) {
	changed := good.Manifest
	changed.Version = "v1.2.3"
	for name, c := range map[string]struct {
		release
		from, want string
	}{
		"another version":  {f.write(changed, "v1.2.3", good.program), good.program, "update.publicKeys"},
		"another platform": {f.sign("v1.2.4", good.program, func(m *agentupdate.Manifest) { m.Arch = "mips" }), good.program, "os, arch:"},
		"another program":  {good, f.policy, "sha256"},
		"no program":       {good, filepath.Join(f.dir, "missing"), "no such file"},
		"no address":       {good, "ftp://example/agent", "from:"},
	} {
		if out, err := f.update(c.release, c.from); err == nil || !strings.Contains(out, c.want) {
			f.t.Errorf("%s: %v\n%s\nwant %s", name, err, out, c.want)
		}
	}
	f.taskIsUntouched()
}
