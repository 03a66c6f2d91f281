package slots

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
)

var (
	testPublic, testPrivate, _ = ed25519.GenerateKey(nil)
	testKeys                   = []ed25519.PublicKey{testPublic}
)

// programOf returns the program of a version in these tests. Versions with "bad" in their name crash.
func programOf(version string) []byte { return []byte(strings.Repeat("program "+version+"\n", 9)) }

func manifestOf(version string) agentupdate.Manifest {
	sum := sha256.Sum256(programOf(version))
	return agentupdate.Manifest{
		Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH, Size: int64(len(programOf(version))), SHA256: hex.EncodeToString(sum[:]),
	}.Sign(testPrivate)
}

// robot is a robot with an installed program, which runs agents in these tests.
type robot struct {
	t       *testing.T
	store   *Store
	keys    []ed25519.PublicKey
	keysErr error
	program Program
	now     time.Time
	// try is what a version on trial does. If nil, bad ones crash and others pass.
	try func(version string) TrialEnd
	// failsExec is a version that cannot be executed.
	failsExec string
}

func newRobot(t *testing.T) *robot {
	return &robot{t: t, store: Open(fastDir(t)), keys: testKeys, program: installed, now: at}
}

// fastDir returns a directory in memory, if there is one: these tests sync thousands of files.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "k8s4r-slots-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// executed is the panic that stands for another program in this process.
type executed struct{ version string }

// boot starts the launcher and returns the version that runs, or "installed". All that runs is verified.
func (r *robot) boot() (runs string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case executed:
			runs = p.version
		default:
			panic(p)
		}
	}()
	r.launch()
	return "installed"
}

func (r *robot) launch() (status int, isDone bool) {
	l := &Launcher{
		Store: r.store, Program: r.program, Log: slog.New(slog.DiscardHandler),
		ReadKeys: func() ([]ed25519.PublicKey, error) { return r.keys, r.keysErr },
		Now:      func() time.Time { return r.now },
		Clock:    func() Start { return Start{BootID: "boot", SinceBoot: r.now.Sub(at)} },
		Execute: func(slot Slot, program string) error {
			version := r.versionAt(program)
			if version == r.failsExec {
				return errors.New("exec format error")
			}
			panic(executed{version})
		},
		Try: func(slot Slot, program string, _ time.Duration) TrialEnd {
			version := r.versionAt(program)
			if r.try != nil {
				return r.try(version)
			}
			if strings.Contains(version, "bad") {
				return TrialEnd{Problem: "it ended with exit status 1", Status: 1}
			}
			if err := r.store.Pass(r.now); err != nil {
				r.t.Error(err)
			}
			return TrialEnd{}
		},
	}
	return l.Run()
}

// versionAt returns the version of a program, which must be complete.
func (r *robot) versionAt(path string) string {
	r.t.Helper()
	b, err := os.ReadFile(path)
	version, _, _ := strings.Cut(strings.TrimPrefix(string(b), "program "), "\n")
	if err != nil || string(b) != string(programOf(version)) {
		r.t.Errorf("a program that is not complete would run: %.40q, %v", b, err)
	}
	return version
}

// order stages a version and begins its trial.
func (r *robot) order(version string) {
	slot, err := r.store.Stage(context.Background(), manifestOf(version), func(_ context.Context, dir string) error {
		path := filepath.Join(dir, ProgramName)
		if d, ok := r.store.disk.(*cutDisk); ok {
			d.unsynced = path
		}
		return os.WriteFile(path, programOf(version), 0o600)
	})
	if err == nil {
		err = r.store.BeginTrial(Order{Slot: slot, Installed: installed})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// powerCut is the panic of a cutDisk.
type powerCut struct{}

// cutDisk cuts the power at a step, before its change or, if half is set, in the middle of it.
type cutDisk struct {
	osDisk
	left     int
	half     bool
	unsynced string // a file whose content is not on the disk yet
}

func (d *cutDisk) step(half func()) {
	if d.left > 0 {
		d.left--
		return
	}
	if d.unsynced != "" {
		_ = os.Truncate(d.unsynced, 20)
	}
	if d.half {
		half()
	}
	panic(powerCut{})
}

func (d *cutDisk) makeDir(path string) error {
	d.step(func() { _ = os.Mkdir(path, 0o700) })
	return d.osDisk.makeDir(path)
}

func (d *cutDisk) removeAll(path string) error {
	d.step(func() {
		_ = os.Truncate(filepath.Join(path, ProgramName), 10)
		_ = os.Remove(filepath.Join(path, manifestName))
	})
	return d.osDisk.removeAll(path)
}

func (d *cutDisk) syncProgram(path string) error {
	d.step(func() { _ = os.Chmod(path, 0o755) })
	d.unsynced = ""
	return d.osDisk.syncProgram(path)
}

func (d *cutDisk) writeFile(path string, content []byte) error {
	d.step(func() { _ = os.WriteFile(path+"-unfinished", content[:len(content)/2], 0o600) })
	return d.osDisk.writeFile(path, content)
}

func (d *cutDisk) rename(from, to string) error {
	d.step(func() { _ = os.Rename(from, to) })
	return d.osDisk.rename(from, to)
}

// story updates a robot several times. may receives the versions that may run after a power cut.
func (r *robot) story(may *[]string) {
	before := "installed"
	for _, version := range []string{"v1", "v2-bad", "v3", "v1"} {
		after := version
		if strings.Contains(version, "bad") {
			after = before
		}
		*may = []string{before, after}
		r.order(version)
		if runs := r.boot(); runs != after {
			r.t.Errorf("after the update to %s %s runs, want %s", version, runs, after)
		}
		before = after
	}
}

// runUntilCut runs the story up to the power cut. It returns false if there was none.
func (r *robot) runUntilCut(may *[]string) (isCut bool) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case powerCut:
			isCut = true
		default:
			panic(p)
		}
	}()
	r.story(may)
	return false
}

// TestSlots_SurvivePowerCutAtEachStep cuts the power at each change of the disk. Afterwards the version before
// or the new one runs, complete and verified, and the robot can be updated again.
func TestSlots_SurvivePowerCutAtEachStep(t *testing.T) {
	cuts := 0
	for _, half := range []bool{false, true} {
		for step := 0; ; step++ {
			r := newRobot(t)
			r.store.disk = &cutDisk{left: step, half: half}
			var may []string
			if !r.runUntilCut(&may) {
				break
			}
			cuts++
			r.store.disk = osDisk{}
			runs := r.boot()
			if !slices.Contains(may, runs) {
				t.Errorf("power cut at step %d (half: %v): %s runs, want one of %v", step, half, runs, may)
			}
			if again := r.boot(); again != runs {
				t.Errorf("power cut at step %d (half: %v): %s runs, and after a restart %s", step, half, runs, again)
			}
			if r.order("v9"); r.boot() != "v9" {
				t.Errorf("power cut at step %d (half: %v): the robot cannot be updated again", step, half)
			}
		}
	}
	if cuts < 60 {
		t.Errorf("%d power cuts, want one at each step", cuts)
	}
}
