package slots

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The names in the state directory.
const (
	dirName      = "agent"
	stateName    = "state.json"
	downloadName = "download"
	// ProgramName is the name of the program in a slot and in a download.
	ProgramName  = "k8s4r-agent"
	manifestName = "manifest.json"
)

// maxState bounds the state file, in bytes.
const maxState = 64 << 10

// ErrDamaged reports that the state file cannot be used. The installed program runs then.
var ErrDamaged = errors.New("the state of the slots cannot be used")

// Store is the directory with the slots. One process uses it at a time: the one that holds the lock of the
// state directory, or the launcher that has just released it.
type Store struct {
	dir  string
	disk disk
}

// Open returns the slots in a state directory. It reads and writes nothing yet.
func Open(stateDir string) *Store { return &Store{filepath.Join(stateDir, dirName), osDisk{}} }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// Program returns the path of the program in a slot.
func (s *Store) Program(slot Slot) string { return s.path(string(slot), ProgramName) }

// Load returns the state. Without a file it is that of an agent that was never updated, and exists is false.
// It returns ErrDamaged if the file cannot be used.
func (s *Store) Load() (state State, exists bool, err error) {
	state = State{Format: stateFormat, Phase: Settled}
	text, err := readBounded(s.path(stateName), maxState)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state, false, nil
	case err != nil:
		return state, true, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var read State
	if err = json.Unmarshal(text, &read); err == nil {
		err = read.validate()
	}
	if err != nil {
		return state, true, fmt.Errorf("%w: %s: %w", ErrDamaged, s.path(stateName), err)
	}
	return read, true, nil
}

// save replaces the state file. After an error the old file is there.
func (s *Store) save(state State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return s.disk.writeFile(s.path(stateName), text)
}

// Manifest returns the manifest of a slot, which is not verified.
func (s *Store) Manifest(slot Slot) (agentupdate.Manifest, error) {
	text, err := readBounded(s.path(string(slot), manifestName), agentupdate.MaxManifest)
	if err != nil {
		return agentupdate.Manifest{}, err
	}
	return agentupdate.Parse(text)
}

// Verify returns an error unless the slot has a program for this platform whose manifest one of the keys has
// signed.
func (s *Store) Verify(slot Slot, keys []ed25519.PublicKey) (agentupdate.Manifest, error) {
	m, err := s.Manifest(slot)
	if err == nil {
		err = errors.Join(m.Verify(keys), m.CheckPlatform(runtime.GOOS, runtime.GOARCH))
	}
	if err == nil {
		err = verifyProgram(s.Program(slot), m)
	}
	if err != nil {
		return m, fmt.Errorf("%s cannot be used: %w", slot, err)
	}
	return m, nil
}

// verifyProgram returns an error unless a file is the program that the manifest describes.
func verifyProgram(path string, m agentupdate.Manifest) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, m.Size+1))
	switch {
	case err != nil:
		return err
	case n != m.Size:
		return fmt.Errorf("size: %s does not have the %d bytes of the manifest", path, m.Size)
	case hex.EncodeToString(h.Sum(nil)) != m.SHA256:
		return fmt.Errorf("sha256: %s has another checksum than the manifest", path)
	}
	return nil
}

// Fetch fetches a program to the file ProgramName in dir, which exists. The caller verifies it.
type Fetch func(ctx context.Context, dir string) error

// Stage puts the version of a verified manifest into the slot that is not active, and returns that slot. A
// slot that already has it is kept. Nothing refers to the slot until BeginTrial.
func (s *Store) Stage(ctx context.Context, m agentupdate.Manifest, fetch Fetch) (Slot, error) {
	state, _, err := s.Load()
	if err != nil {
		state = State{} // BeginTrial replaces a damaged file
	}
	slot := state.inactive()
	if there, err := s.Manifest(slot); err == nil && there == m && verifyProgram(s.Program(slot), m) == nil {
		return slot, nil
	}
	if err := s.download(ctx, m, slot, fetch); err != nil {
		return slot, err
	}
	return slot, s.disk.rename(s.path(downloadName), s.path(string(slot)))
}

// download makes the directory of a download complete and durable. The slot is emptied first, for the space
// that it takes.
func (s *Store) download(ctx context.Context, m agentupdate.Manifest, slot Slot, fetch Fetch) error {
	if err := s.disk.makeDir(s.dir); err != nil {
		return err
	}
	dir := s.path(downloadName)
	for _, old := range []string{dir, s.path(string(slot))} {
		if err := s.disk.removeAll(old); err != nil {
			return err
		}
	}
	if err := s.disk.makeDir(dir); err != nil {
		return err
	}
	if err := s.completeDownload(ctx, m, dir, fetch); err != nil {
		return errors.Join(err, s.disk.removeAll(dir))
	}
	return nil
}

func (s *Store) completeDownload(ctx context.Context, m agentupdate.Manifest, dir string, fetch Fetch) error {
	if err := fetch(ctx, dir); err != nil {
		return err
	}
	program := filepath.Join(dir, ProgramName)
	if err := verifyProgram(program, m); err != nil {
		return err
	}
	if err := s.disk.syncProgram(program); err != nil {
		return err
	}
	return s.disk.writeFile(filepath.Join(dir, manifestName), m.Encode())
}

// BeginTrial makes a slot active. The launcher then starts it, on trial.
func (s *Store) BeginTrial(o Order) error {
	state, _, err := s.Load()
	if err != nil {
		state = State{Format: stateFormat, Phase: Settled}
	}
	if state.Phase == Trying {
		return ErrOnTrial
	}
	return s.save(state.next(event{signal: signalOrder, order: o}))
}

// Pass ends the trial of the active slot at a time of the robot's clock.
func (s *Store) Pass(at time.Time) error { return s.apply(event{signal: signalPass, at: at}) }

// RecordReport keeps the report about an order that has changed no slot.
func (s *Store) RecordReport(r wire.AgentUpdate) error {
	if err := s.disk.makeDir(s.dir); err != nil {
		return err
	}
	return s.apply(event{signal: signalReport, report: r})
}

// Revert makes the slot before the active one active again. The launcher then starts it. Running is the slot of
// this agent, and writes are its formats. The report is that of the order. After an error nothing has changed.
func (s *Store) Revert(running Slot, writes Formats, keys []ed25519.PublicKey, r wire.AgentUpdate) error {
	state, _, err := s.Load()
	if err != nil {
		return err
	}
	switch {
	case state.Phase == Trying:
		return ErrOnTrial
	case !state.isOrdered() || state.Active != running || state.Report.Rollout != r.Rollout:
		return ErrNotOrdered
	case state.PreviousReads == Formats{}:
		return ErrNoPrevious
	}
	if err := writes.CheckReadable(state.PreviousReads); err != nil {
		return fmt.Errorf("the version before cannot take over: %w", err)
	}
	if state.Previous != Installed {
		if _, err := s.Verify(state.Previous, keys); err != nil {
			return fmt.Errorf("the version before: %w", err)
		}
	}
	return s.save(state.next(event{signal: signalRevert, report: r}))
}

// ErrNoPrevious refuses to revert an update after a later one that was given up: it has replaced the version before.
var ErrNoPrevious = errors.New("the version before is not on the robot any more, because a later one has replaced it and was given up; update the agent to it")

// ErrNotOrdered refuses to revert an update that the Rollout has not made.
var ErrNotOrdered = errors.New("this Rollout has not installed the version that runs, so the robot keeps it; update the agent to another version")

// RecordProblem records why the version on trial has not passed its self-test. The launcher goes back.
func (s *Store) RecordProblem(problem string) error {
	state, _, err := s.Load()
	if err != nil || state.Phase != Trying {
		return err
	}
	state.TrialProblem = problem[:min(len(problem), maxReason)]
	return s.save(state)
}

// RecordStop records that the active slot has stopped in order, which is no crash.
func (s *Store) RecordStop() error {
	state, _, err := s.Load()
	if err != nil || len(state.Starts) == 0 {
		return err
	}
	return s.save(state.next(event{signal: signalStop}))
}

func (s *Store) apply(e event) error {
	state, _, err := s.Load()
	if err != nil {
		return err
	}
	return s.save(state.next(e))
}

// IdentifyProgram identifies the program at a path.
func IdentifyProgram(path string) (Program, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Program{}, err
	}
	return Program{Size: info.Size(), ModTime: info.ModTime().UTC()}, nil
}

// CheckExecutable returns an error if programs in the state directory cannot be executed.
func (s *Store) CheckExecutable() error {
	var info unix.Statfs_t
	parent := filepath.Dir(s.dir)
	if err := unix.Statfs(parent, &info); err != nil {
		return &fs.PathError{Op: "statfs", Path: parent, Err: err}
	}
	if info.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("stateDir: %s is mounted noexec, so no version of the agent can run from it; mount it without noexec, or install the new version by hand", parent)
	}
	return nil
}

func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return b, err
}
