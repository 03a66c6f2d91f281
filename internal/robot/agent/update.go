package agent

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/protocol/wire"
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
		Store: a.slots, Launcher: launcher, Running: version.Version, Slot: mark.Slot, Reads: formats, IsOnTrial: func() bool { return mark.OnTrial },
		ReadKeys:     func() ([]ed25519.PublicKey, error) { return policyfile.ReadUpdateKeys(a.config.PolicyFile) },
		CheckContact: a.checkContact, CheckSpace: a.checkSpace, MayUpdate: a.checkHold,
		Switch: func() { a.switchOnce.Do(func() { close(a.switchOver) }) }, Log: a.log,
	})
	a.openOrders()
	return nil
}

// openOrders reads what an earlier agent reports about the order of a Rollout.
func (a *Agent) openOrders() {
	state, _, err := a.slots.Load()
	if err != nil {
		a.log.Warn("what the agent has reported about its updates is lost", "error", err)
	}
	var report *wire.AgentUpdate
	if state.Report != nil {
		report = &state.Report.AgentUpdate
	}
	a.orders = selfupdate.NewOrders(selfupdate.OrdersConfig{
		Updates: a.updates, Running: version.Version, IsOnTrial: a.config.Launch.OnTrial, Report: report, Keep: a.slots.RecordReport,
		OnChange: func() { a.connection.RegisterAgain() }, SinceBoot: shim.SinceBoot, Now: time.Now, Log: a.log,
	})
}

// deliverAgentOrder takes over the order of a response.
func (a *Agent) deliverAgentOrder(r wire.Response) {
	if r.AgentOrder == nil {
		return
	}
	if err := a.orders.Deliver(*r.AgentOrder); err != nil {
		a.problems.WarnDropped("order to update the agent", err)
	}
}

// readUpdate returns what the registration has about updates of the agent.
func (a *Agent) readUpdate() (updatesItself bool, report *wire.AgentUpdate) {
	return a.policy.HasUpdateKeys(), a.orders.Report()
}

// checkHold returns an error if a person at the robot keeps it from being interrupted. The hold of one task does
// not concern the agent, which leaves all tasks running.
func (a *Agent) checkHold() error {
	if h := a.local.Read().FindHold(""); h != nil {
		return fmt.Errorf("the robot is on hold by %s: %s; end the hold with k8s4r-agent release, and update then", h.By, h.Reason)
	}
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
