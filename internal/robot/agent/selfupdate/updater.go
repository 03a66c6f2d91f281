// Package selfupdate lets the running agent update itself: it verifies a version, fetches it into a slot
// (package slots) and hands over to the launcher, which tries it.
package selfupdate

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// fetchTimeout bounds the transfer of a version with all retries.
const fetchTimeout = 30 * time.Minute

// Errors of Request.
var (
	// ErrNoKey refuses all updates of a robot without a key.
	ErrNoKey = errors.New("update.publicKeys: the policy file of the robot has no key, so its agent does not update itself; " +
		"add the public key that k8s4r agent-key new prints")
	// ErrBusy refuses a second update at the same time.
	ErrBusy = errors.New("an update of the agent is under way already; k8s4r-agent status shows its result")
)

// Config configures an Updater.
type Config struct {
	Store *slots.Store
	// Launcher is the path of the installed program.
	Launcher string
	// Running is the version of this agent, and Reads are the formats that it reads and writes.
	Running string
	// Slot of this agent. If empty, it is the installed program.
	Slot  slots.Slot
	Reads slots.Formats
	// IsOnTrial is set while this agent has not passed its self-test.
	IsOnTrial func() bool
	// ReadKeys returns the keys that sign versions (policyfile.ReadUpdateKeys).
	ReadKeys func() ([]ed25519.PublicKey, error)
	// CheckContact returns an error if the robot is not in contact with the server: a new version could not
	// pass its self-test.
	CheckContact func() error
	// MayUpdate returns why the agent must not be interrupted now. If nil, it always may.
	MayUpdate func() error
	// CheckSpace returns an error if so many bytes would take the last space of the robot's disk.
	CheckSpace func(bytes int64) error
	// Switch ends this agent, which leaves its tasks running, and starts the launcher.
	Switch func()
	Log    *slog.Logger
}

// Request is an order to run a version.
type Request struct {
	Manifest agentupdate.Manifest
	// Source is an http, https or file address of the program.
	Source string
	// By is the origin of the order, for the log.
	By string
	// MayBegin returns why this update must not begin to restart the agent now. If nil, it always may.
	MayBegin func() error
	// Report is what the version reports while it is on trial. If nil, no Rollout has ordered it.
	Report *wire.AgentUpdate
}

// MomentError is why the agent must not be replaced now. The same request may succeed later.
type MomentError struct{ Reason error }

// Error returns the reason.
func (e *MomentError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *MomentError) Unwrap() error { return e.Reason }

// Updater carries out one update at a time.
type Updater struct {
	config Config
	busy   sync.Mutex // held from a request until the agent has ended, or the request has failed
}

// New returns an Updater.
func New(c Config) *Updater { return &Updater{config: c} }

// Request verifies, fetches and stages a version. When it returns no error, the next start of the agent tries
// the version, and switchOver ends this agent for that. The caller sends its answer before it calls switchOver.
// After an error nothing has changed.
func (u *Updater) Request(ctx context.Context, r Request) (switchOver func(), err error) {
	if !u.busy.TryLock() {
		return nil, ErrBusy
	}
	if err := u.prepare(ctx, r); err != nil {
		u.busy.Unlock()
		u.config.Log.Warn("an update of the agent is refused", "version", r.Manifest.Version, "by", r.By, "error", err)
		return nil, err
	}
	u.config.Log.Info("the agent switches to another version, tasks keep running", "version", r.Manifest.Version, "by", r.By)
	return u.config.Switch, nil
}

func (u *Updater) prepare(ctx context.Context, r Request) error {
	if err := u.checkManifest(r.Manifest); err != nil {
		return err
	}
	if err := r.artifact().Check(); err != nil {
		return errors.New("from: must be the address of a program: http://, https:// or a file of the robot, and no checksum in it")
	}
	if err := u.CheckMoment(r.MayBegin); err != nil {
		return err
	}
	installed, err := slots.IdentifyProgram(u.config.Launcher)
	if err != nil {
		return fmt.Errorf("the installed program, which starts other versions, cannot be found: %w", err)
	}
	slot, err := u.config.Store.Stage(ctx, r.Manifest, func(ctx context.Context, dir string) error {
		if err := u.config.CheckSpace(r.Manifest.Size); err != nil {
			return err
		}
		err := artifact.Fetch(ctx, r.artifact(), artifact.Limits{MaxBytes: r.Manifest.Size, Timeout: fetchTimeout}, dir)
		return errors.Unwrap(err) // without the position in a list of artifacts
	})
	if err != nil {
		return fmt.Errorf("fetch version %s: %w", r.Manifest.Version, err)
	}
	if err := u.CheckMoment(r.MayBegin); err != nil { // the transfer may have taken long
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return u.config.Store.BeginTrial(slots.Order{Slot: slot, Reads: u.config.Reads, Installed: installed, Report: r.Report})
}

// checkManifest returns an error unless the robot may run the program of a manifest.
func (u *Updater) checkManifest(m agentupdate.Manifest) error {
	keys, err := u.config.ReadKeys()
	switch {
	case err != nil:
		return err
	case len(keys) == 0:
		return ErrNoKey
	}
	if err := errors.Join(m.Validate(), m.Verify(keys), m.CheckPlatform(runtime.GOOS, runtime.GOARCH)); err != nil {
		return err
	}
	if m.Version == u.config.Running {
		return fmt.Errorf("version: the agent runs version %s already", m.Version)
	}
	return u.config.Store.CheckExecutable()
}

// CheckMoment returns a MomentError if the agent must not be updated now. MayBegin is that of a Request.
func (u *Updater) CheckMoment(mayBegin func() error) error {
	return findMomentError(u.checkTrial, u.config.CheckContact, u.config.MayUpdate, mayBegin)
}

func (u *Updater) checkTrial() error {
	if u.config.IsOnTrial() {
		return slots.ErrOnTrial
	}
	return nil
}

// findMomentError returns the error of the first check that fails. Nil checks pass.
func findMomentError(checks ...func() error) error {
	for _, check := range checks {
		if check == nil {
			continue
		}
		if err := check(); err != nil {
			return &MomentError{err}
		}
	}
	return nil
}

// Revert makes the version before the running one run again, if the Rollout of the report has installed the
// running one. It needs no contact, and works as Request does. The report is what that version reports.
func (u *Updater) Revert(report wire.AgentUpdate, by string) (switchOver func(), err error) {
	if !u.busy.TryLock() {
		return nil, ErrBusy
	}
	if err := u.revert(report); err != nil {
		u.busy.Unlock()
		u.config.Log.Warn("the agent does not go back to the version before", "by", by, "error", err)
		return nil, err
	}
	u.config.Log.Info("the agent goes back to the version before, tasks keep running", "by", by)
	return u.config.Switch, nil
}

func (u *Updater) revert(report wire.AgentUpdate) error {
	if err := findMomentError(u.checkTrial, u.config.MayUpdate); err != nil {
		return err
	}
	keys, err := u.config.ReadKeys()
	if err != nil {
		return err
	}
	return u.config.Store.Revert(u.config.Slot, u.config.Reads, keys, report)
}

// artifact returns the request for the program. Its checksum is that of the signed manifest.
func (r Request) artifact() artifact.Request {
	return artifact.Request{
		Source: r.Source, Dest: slots.ProgramName, Mode: artifact.ModeFile,
		Options: map[string]string{"checksum": "sha256:" + r.Manifest.SHA256},
	}
}

// FileSource returns the address of a file of the robot.
func FileSource(path string) string {
	u := url.URL{Scheme: "file", Path: path}
	return u.String()
}
