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
	// Running is the version of this agent, and Reads are the formats that it reads.
	Running string
	Reads   slots.Formats
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
}

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
	if err := u.checkMoment(); err != nil {
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
	if err := u.checkMoment(); err != nil { // the transfer may have taken long
		return err
	}
	return u.config.Store.BeginTrial(slots.Order{Slot: slot, Reads: u.config.Reads, Installed: installed})
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

// checkMoment returns an error if the agent must not be replaced now.
func (u *Updater) checkMoment() error {
	if u.config.IsOnTrial() {
		return slots.ErrOnTrial
	}
	if err := u.config.CheckContact(); err != nil {
		return err
	}
	if u.config.MayUpdate == nil {
		return nil
	}
	return u.config.MayUpdate()
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
