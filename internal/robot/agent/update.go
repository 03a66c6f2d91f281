package agent

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/localstate"
	"k8s4r.io/k8s4r/internal/robot/agent/policyfile"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// formats are the versions of the files that this agent writes. It reads them, too.
var formats = slots.Formats{Journal: journal.Format, Shim: shim.StateFormat, Local: localstate.Format}

// openSlots opens the versions of the agent, and begins the self-test if this one is on trial.
func (a *Agent) openSlots() error {
	a.slots = slots.Open(a.config.StateDir)
	mark := a.config.Launch
	if mark.OnTrial {
		if err := checkTrial(a.slots, mark); err != nil {
			return err
		}
		a.trial = newTrial()
	}
	launcher := mark.Launcher
	if launcher == "" {
		var err error
		if launcher, err = os.Executable(); err != nil {
			return fmt.Errorf("find the path of this program: %w", err)
		}
	}
	a.updates = selfupdate.New(selfupdate.Config{
		Store: a.slots, Launcher: launcher, Running: version.Version, Reads: formats, IsOnTrial: func() bool { return mark.OnTrial },
		ReadKeys:     func() ([]ed25519.PublicKey, error) { return policyfile.ReadUpdateKeys(a.config.PolicyFile) },
		CheckContact: a.checkContact, CheckSpace: a.checkSpace,
		Switch: func() { a.switchOnce.Do(func() { close(a.switchOver) }) }, Log: a.log,
	})
	return nil
}

// errNoContact refuses an update that could not pass its self-test.
var errNoContact = errors.New("the robot is not in contact with the server, so that a new version could not be tested; " +
	"try again when k8s4r-agent status shows that the server has responded")

// checkContact returns errNoContact unless the server has acknowledged one of the last heartbeats.
func (a *Agent) checkContact() error {
	_, isRegistered, _ := a.connection.State()
	now := time.Now()
	last := a.lastSeen.Time(now)
	if !isRegistered || last == nil || now.Sub(*last) > contactHeartbeats*a.config.Heartbeat {
		return errNoContact
	}
	return nil
}

// checkSpace returns an error if a file of this size would take the last space of the disk.
func (a *Agent) checkSpace(size int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(a.config.StateDir, &s); err != nil {
		return &os.PathError{Op: "statfs", Path: a.config.StateDir, Err: err}
	}
	return checkSpaceIn(s, a.config.StateDir, size)
}

func checkSpaceIn(s unix.Statfs_t, dir string, size int64) error {
	blocks := uint64(size)/uint64(s.Bsize) + 1
	after := s
	after.Bavail -= min(blocks, s.Bavail)
	if blocks > s.Bavail || isAlmostFull(after, false) {
		return fmt.Errorf("stateDir: the disk of %s would be almost full with another %d MB; make room there", dir, size>>20+1)
	}
	return nil
}

// recordStop records that a version from a slot stops in order. Without the record a few restarts in a minute
// look like a crash loop.
func (a *Agent) recordStop() {
	if a.config.Launch.Slot == slots.Installed || a.config.Launch.OnTrial {
		return
	}
	if err := a.slots.RecordStop(); err != nil {
		a.log.Warn("the stop of the agent is not recorded", "error", err)
	}
}
