package slots

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func (r *robot) state() State {
	r.t.Helper()
	s, _, err := r.store.Load()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// updated returns a robot that runs these versions, the last one now.
func updated(t *testing.T, versions ...string) *robot {
	t.Helper()
	r := newRobot(t)
	for _, v := range versions {
		if r.order(v); r.boot() != v {
			t.Fatalf("%s does not run", v)
		}
	}
	return r
}

func TestLauncher_ChoosesWhatRuns(t *testing.T) {
	damage := func(t *testing.T, path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("half"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, r *robot)
		want   string
		reason string // of the failure; empty: none
	}{
		"the active slot":    {func(*testing.T, *robot) {}, "v2", ""},
		"a half-written one": {func(t *testing.T, r *robot) { damage(t, r.store.Program(SlotB)) }, "v1", "size:"},
		"both half-written": {func(t *testing.T, r *robot) {
			damage(t, r.store.Program(SlotA))
			damage(t, r.store.Program(SlotB))
		}, "installed", "size:"},
		"a damaged manifest":            {func(t *testing.T, r *robot) { damage(t, r.store.path("b", manifestName)) }, "v1", "manifest"},
		"a damaged state":               {func(t *testing.T, r *robot) { damage(t, r.store.path(stateName)) }, "installed", ""},
		"a state of a later time":       {func(t *testing.T, r *robot) { damage(t, r.store.path(stateName)) }, "installed", ""},
		"another key":                   {func(_ *testing.T, r *robot) { r.keys = []ed25519.PublicKey{make([]byte, 32)} }, "installed", "update.publicKeys"},
		"no key":                        {func(_ *testing.T, r *robot) { r.keys = nil }, "installed", "update.publicKeys"},
		"keys that cannot be read":      {func(_ *testing.T, r *robot) { r.keysErr = errors.New("policy: invalid") }, "installed", ""},
		"a new installed program":       {func(_ *testing.T, r *robot) { r.program.Size++ }, "installed", ""},
		"a program for another machine": {func(_ *testing.T, r *robot) { r.failsExec = "v2" }, "v1", "it cannot be executed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := updated(t, "v1", "v2")
			c.change(t, r)
			if runs := r.boot(); runs != c.want {
				t.Errorf("%s runs, want %s", runs, c.want)
			}
			if c.reason == "" {
				return
			}
			if f := r.state().LastFailure; f == nil || !strings.Contains(f.Reason, c.reason) {
				t.Errorf("the last failure is %+v, want %s", f, c.reason)
			}
		})
	}
}

// orderBy stages a version for a Rollout and begins its trial.
func (r *robot) orderBy(rollout, version string) {
	r.t.Helper()
	r.order(version)
	s := r.state()
	s.PreviousReads = Formats{Journal: 1, Shim: 1, Local: 1}
	s.Report = &Report{AgentUpdate: wire.AgentUpdate{Rollout: rollout, Version: version, State: wire.AgentTrying}, Slot: s.Active}
	if err := r.store.save(s); err != nil {
		r.t.Fatal(err)
	}
}

func TestStore_RevertsToTheVersionBefore(t *testing.T) {
	for name, c := range map[string]struct {
		before []string
		want   string
	}{"the other slot": {[]string{"v1"}, "v1"}, "the installed program": {nil, "installed"}} {
		r := updated(t, c.before...)
		r.orderBy("r", "v2")
		if runs := r.boot(); runs != "v2" || r.state().Report.State != wire.AgentSettled {
			t.Fatalf("%s: %s runs, %+v", name, runs, r.state().Report)
		}
		report := wire.AgentUpdate{Rollout: "r", IsRevert: true, Version: "v2", State: wire.AgentSettled}
		if err := r.store.Revert(r.state().Active, Formats{}, testKeys, report); err != nil {
			t.Fatal(err)
		}
		if runs := r.boot(); runs != c.want || r.state().Report.AgentUpdate != report || r.state().LastFailure != nil {
			t.Errorf("%s: %s runs, %+v", name, runs, r.state())
		}
	}
}

func TestStore_RefusesToRevert(t *testing.T) {
	for want, change := range map[string]func(r *robot, running *Slot, writes *Formats, report *wire.AgentUpdate){
		ErrNotOrdered.Error():             func(_ *robot, _ *Slot, _ *Formats, report *wire.AgentUpdate) { report.Rollout = "other" },
		"this Rollout has not installed":  func(_ *robot, running *Slot, _ *Formats, _ *wire.AgentUpdate) { *running = Installed },
		"the version before cannot take":  func(_ *robot, _ *Slot, writes *Formats, _ *wire.AgentUpdate) { writes.Journal = 9 },
		"the version before: slot a cann": func(r *robot, _ *Slot, _ *Formats, _ *wire.AgentUpdate) { _ = os.Remove(r.store.Program(SlotA)) },
		ErrNoPrevious.Error():             func(r *robot, _ *Slot, _ *Formats, _ *wire.AgentUpdate) { r.order("v3-bad"); r.boot() },
		ErrOnTrial.Error():                func(r *robot, _ *Slot, _ *Formats, _ *wire.AgentUpdate) { r.order("v3") },
	} {
		r := updated(t, "v1")
		r.orderBy("r", "v2")
		r.boot()
		running, writes, report := SlotB, Formats{}, wire.AgentUpdate{Rollout: "r", IsRevert: true, Version: "v2"}
		change(r, &running, &writes, &report)
		before := r.state()
		if err := r.store.Revert(running, writes, testKeys, report); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if now := r.state(); now.Active != before.Active || *now.Report != *before.Report {
			t.Errorf("%s: the state is %+v", want, now)
		}
	}
}

func TestLauncher_KeepsSlotsWhileKeysCannotBeRead(t *testing.T) {
	r := updated(t, "v1")
	r.keysErr = errors.New("policy: invalid")
	if runs := r.boot(); runs != "installed" {
		t.Errorf("%s runs without keys", runs)
	}
	if r.keysErr = nil; r.boot() != "v1" {
		t.Error("the slot is lost, although only the keys could not be read")
	}
}

func TestLauncher_GoesBackFromBadVersions(t *testing.T) {
	for name, c := range map[string]struct {
		end    TrialEnd
		took   time.Duration
		starts int
		reason string
	}{
		"it crashes":               {TrialEnd{Problem: "it ended with exit status 1"}, 0, 3, "it ended 3 times before"},
		"it crashes late":          {TrialEnd{Problem: "it ended with exit status 1"}, 20 * time.Second, 1, "there is no time for another start"},
		"it hangs":                 {TrialEnd{Problem: "it did not end", IsTimeout: true}, trialTimeout, 1, "it did not end"},
		"it cannot be started":     {TrialEnd{Problem: "it cannot be started", IsTimeout: true}, 0, 1, "it cannot be started"},
		"it ends without an error": {TrialEnd{Problem: "it ended with exit status 0"}, 0, 3, "it ended 3 times before"},
	} {
		t.Run(name, func(t *testing.T) {
			r, starts := updated(t, "v1"), 0
			r.try = func(string) TrialEnd { starts++; r.now = r.now.Add(c.took); return c.end }
			r.order("v2")
			if runs := r.boot(); runs != "v1" || starts != c.starts {
				t.Errorf("%s runs after %d starts, want v1 after %d", runs, starts, c.starts)
			}
			if f := r.state().LastFailure; f == nil || f.Version != "v2" || !strings.Contains(f.Reason, c.reason) {
				t.Errorf("the last failure is %+v, want %s", f, c.reason)
			}
			if took := r.now.Sub(at); took > time.Minute {
				t.Errorf("going back takes %v", took)
			}
		})
	}
}

func TestLauncher_GoesBackWithTheProblemOfTheSelfTest(t *testing.T) {
	r := updated(t, "v1")
	r.try = func(string) TrialEnd {
		if err := r.store.RecordProblem("no heartbeat was acknowledged"); err != nil {
			t.Error(err)
		}
		return TrialEnd{Problem: "it ended with exit status 1"}
	}
	r.order("v2")
	if runs := r.boot(); runs != "v1" || r.state().LastFailure.Reason != "no heartbeat was acknowledged" {
		t.Errorf("%s runs, %+v", runs, r.state().LastFailure)
	}
}

func TestLauncher_StopsWithTheTrial(t *testing.T) {
	r := updated(t, "v1")
	r.order("v2")
	r.try = func(string) TrialEnd { return TrialEnd{IsStopped: true, Status: 3} }
	if status, isDone := r.launch(); !isDone || status != 3 {
		t.Errorf("status %d, %v", status, isDone)
	}
	if r.try = nil; r.boot() != "v2" {
		t.Error("the next start does not go on with the trial")
	}
}

func TestLauncher_GoesBackFromCrashLoop(t *testing.T) {
	r := updated(t, "v1", "v2")
	runs := ""
	for range maxLoopStarts {
		r.now = r.now.Add(5 * time.Second)
		runs = r.boot()
	}
	if runs != "v1" || !strings.Contains(r.state().LastFailure.Reason, "5 times within") {
		t.Errorf("%s runs, %+v", runs, r.state().LastFailure)
	}
	for range 4 * maxLoopStarts {
		r.now = r.now.Add(time.Second)
		if err := r.store.RecordStop(); err != nil {
			t.Fatal(err)
		}
		if runs = r.boot(); runs != "v1" {
			t.Fatalf("after orderly stops %s runs", runs)
		}
	}
}

// fullDisk has no space for files.
type fullDisk struct{ osDisk }

func (fullDisk) writeFile(string, []byte) error { return errors.New("no space left on device") }

func TestLauncher_StartsWithFullDisk(t *testing.T) {
	r := updated(t, "v1")
	r.store.disk = fullDisk{}
	if runs := r.boot(); runs != "v1" {
		t.Errorf("%s runs, want the settled version", runs)
	}
	r.store.disk = osDisk{}
	r.order("v2")
	r.store.disk = fullDisk{}
	if runs := r.boot(); runs != "v1" {
		t.Errorf("%s runs, want no trial that cannot be counted", runs)
	}
	r.store.disk = osDisk{}
	if r.boot() != "v2" {
		t.Error("with space the trial does not go on")
	}
}

func TestStage_RefusesWhatTheManifestDoesNotDescribe(t *testing.T) {
	r := updated(t, "v1")
	for name, content := range map[string]string{"shorter": "x", "other": strings.Repeat("x", len(programOf("v2"))), "longer": strings.Repeat("x", 999)} {
		_, err := r.store.Stage(context.Background(), manifestOf("v2"), func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, ProgramName), []byte(content), 0o600)
		})
		if err == nil {
			t.Errorf("a %s program is accepted", name)
		}
	}
	if _, err := os.Stat(r.store.path(downloadName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the download is left: %v", err)
	}
	if runs := r.boot(); runs != "v1" {
		t.Errorf("%s runs", runs)
	}
}

func TestStage_KeepsWhatIsThere(t *testing.T) {
	r := updated(t, "v1", "v2")
	slot, err := r.store.Stage(context.Background(), manifestOf("v1"), func(context.Context, string) error { return errors.New("fetched again") })
	if err != nil || slot != SlotA {
		t.Errorf("slot %q, %v", slot, err)
	}
}

func TestVerify_RefusesOtherPlatform(t *testing.T) {
	r := newRobot(t)
	m := manifestOf("v1")
	m.Arch = "mips"
	m = m.Sign(testPrivate)
	r.order("v1")
	if err := os.WriteFile(r.store.path("a", manifestName), m.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Verify(SlotA, testKeys); err == nil || !strings.Contains(err.Error(), "os, arch:") {
		t.Errorf("a program for another platform: %v", err)
	}
	m.Arch = manifestOf("v1").Arch // not what was signed
	if err := os.WriteFile(r.store.path("a", manifestName), m.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Verify(SlotA, testKeys); !errors.Is(err, agentupdate.ErrUntrusted) {
		t.Errorf("a manifest that was changed: %v", err)
	}
}

func TestLoad_RefusesImpossibleStates(t *testing.T) {
	r := newRobot(t)
	if err := os.MkdirAll(r.store.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "no object": "[]", "a later format": `{"format":2,"active":"a","phase":"settled"}`, "no phase": `{"format":1,"active":"a"}`,
		"another slot": `{"format":1,"active":"../..","phase":"settled"}`, "a trial of nothing": `{"format":1,"active":"","phase":"trying","previous":"a"}`,
		"long": `{"format":1,"active":"a","phase":"settled"}` + strings.Repeat(" ", maxState),
	} {
		if err := os.WriteFile(r.store.path(stateName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.store.Load(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if runs := r.boot(); runs != "installed" {
			t.Errorf("%s: %s runs", name, runs)
		}
		if s := r.store.ReadStatus(Installed); s == nil || s.Problem == "" {
			t.Errorf("%s: status %+v", name, s)
		}
	}
	if r.order("v1"); r.boot() != "v1" {
		t.Error("a damaged state cannot be replaced by an update")
	}
}

func TestMark_IsOnlyForTheChildOrTheLauncherItself(t *testing.T) {
	run := Mark{Launcher: "/opt/my robot/k8s4r-agent", Slot: SlotA}
	trial := run
	trial.OnTrial = true
	for name, c := range map[string]struct {
		value        string
		self, parent int
		want         Mark
	}{
		"replaced": {run.encode(7), 7, 1, run}, "child": {trial.encode(7), 8, 7, trial}, "a grandchild": {trial.encode(7), 9, 8, Mark{}},
		"a child of an agent": {run.encode(7), 8, 7, Mark{}}, "none": {"", 7, 1, Mark{}}, "damaged": {"x a settled /k", 7, 1, Mark{}},
	} {
		if got := decodeMark(c.value, c.self, c.parent); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
