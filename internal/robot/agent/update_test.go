package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

// beginTrial puts a version into a slot and begins its trial. The version before reads these formats.
func beginTrial(t *testing.T, dir, of string, reads slots.Formats) slots.Mark {
	t.Helper()
	content := []byte("program")
	sum := sha256.Sum256(content)
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	m := agentupdate.Manifest{Version: of, OS: runtime.GOOS, Arch: runtime.GOARCH, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}.Sign(key)
	store := slots.Open(dir)
	slot, err := store.Stage(context.Background(), m, func(_ context.Context, to string) error {
		return os.WriteFile(filepath.Join(to, slots.ProgramName), content, 0o600)
	})
	must(t, err)
	must(t, store.BeginTrial(slots.Order{Slot: slot, Reads: reads}))
	return slots.Mark{Launcher: "/installed", Slot: slot, OnTrial: true}
}

func loadState(t *testing.T, dir string) slots.State {
	t.Helper()
	state, _, err := slots.Open(dir).Load()
	must(t, err)
	return state
}

func TestTrial_PassesWithAnAcknowledgedHeartbeat(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	c.Launch = beginTrial(t, c.StateDir, version.Version, formats)
	a := startAgent(t, c)
	if err := a.err(); !errors.Is(err, errSwitchOver) {
		t.Errorf("the agent ends with %v", err)
	}
	if state := loadState(t, c.StateDir); state.Phase != slots.Settled || state.Active != c.Launch.Slot {
		t.Errorf("the state is %+v", state)
	}
}

func TestTrial_LeavesTasksRunning(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir()) // which ends tasks when the agent stops
	first := startAgent(t, c)
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "exec sleep 600"), 1)
	s.awaitRunning("t1", 1)
	first.switchOnce.Do(func() { close(first.switchOver) })
	if err := first.err(); !errors.Is(err, errSwitchOver) {
		t.Fatalf("the agent ends with %v", err)
	}
	c.Launch = beginTrial(t, c.StateDir, version.Version, formats)
	if err := startAgent(t, c).err(); !errors.Is(err, errSwitchOver) {
		t.Fatalf("the version on trial ends with %v", err)
	}
	c.Launch = slots.Mark{}
	a := startAgent(t, c)
	s.awaitRegistered(3)
	if n := a.shims.ShimCount(); n != 1 {
		t.Errorf("%d tasks run after the update", n)
	}
}

func TestTrial_FailsWithoutContact(t *testing.T) {
	s := newFakeServer(t)
	c := s.config(t.TempDir())
	s.stop()
	c.Launch = beginTrial(t, c.StateDir, version.Version, formats)
	a := startAgent(t, c)
	a.trial.timer.Reset(0)
	if err := a.err(); !errors.Is(err, errSelfTest) {
		t.Errorf("the agent ends with %v", err)
	}
	if state := loadState(t, c.StateDir); state.Phase != slots.Trying || !strings.Contains(state.TrialProblem, "self-test has failed") {
		t.Errorf("the state is %+v", state)
	}
}

func TestTrial_RefusesWhatTheVersionBeforeCannotTakeOver(t *testing.T) {
	older := formats
	older.Journal--
	for name, c := range map[string]struct {
		version string
		reads   slots.Formats
		want    string
	}{
		"an older journal": {version.Version, older, "of journal and the version before reads only"},
		"another version":  {"v7", formats, "the program is version " + version.Version},
	} {
		config := (&fakeServer{t: t}).config(t.TempDir())
		config.Launch = beginTrial(t, config.StateDir, c.version, c.reads)
		err := runAgent(config, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if p := loadState(t, config.StateDir).TrialProblem; !strings.Contains(p, c.want) {
			t.Errorf("%s: the launcher reads %q", name, p)
		}
	}
}

func TestParseLaunchConfig_IgnoresWhatOnlyALaterVersionKnows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	must(t, os.WriteFile(file, []byte("robotId: r1\nstateDir: /s\nnewKey: 1\npolicy: /p.yaml\nheartbeat: never\n"), 0o600))
	c, ok := parseLaunchConfig([]string{"--config", file, "--parent-fd=1"})
	if !ok || c.StateDir != "/s" || c.PolicyFile != "/p.yaml" || c.RobotID != "r1" || c.ParentFD != 1 {
		t.Errorf("%+v, %v", c, ok)
	}
	for _, args := range [][]string{{"--version"}, {"--help"}, {"--new-flag"}, {"word"}} {
		if _, ok := parseLaunchConfig(args); ok {
			t.Errorf("%s starts another version", args)
		}
	}
}

func TestCheckSpaceIn_LeavesTheLastSpace(t *testing.T) {
	for name, c := range map[string]struct {
		free, size uint64
		ok         bool
	}{"room": {200, 50, true}, "the last space": {200, 150, false}, "more than there is": {200, 300, false}} {
		s := unix.Statfs_t{Bsize: 1 << 20, Blocks: 2000, Bavail: c.free}
		err := checkSpaceIn(s, "/state", int64(c.size<<20))
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "stateDir: the disk of /state") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUpdates_NeedContact(t *testing.T) {
	s := newFakeServer(t)
	a := startAgent(t, s.config(t.TempDir()))
	s.awaitRegistered(1)
	waitUntil(t, "an acknowledged heartbeat", func() bool { return a.checkContact() == nil })
	s.stop()
	waitUntil(t, "no contact", func() bool { return errors.Is(a.checkContact(), errNoContact) })
	_, err := a.updates.Request(context.Background(), selfupdate.Request{})
	if err == nil {
		t.Error("an update without a manifest is accepted")
	}
}

func TestAwaitUpdate_ReportsTheResult(t *testing.T) {
	old := &slots.Failure{Version: "v1", Reason: "old"}
	failed := &slots.Failure{Version: "v2", Reason: "it hangs"}
	trying := Health{Version: "v2", Update: &slots.Status{Slot: slots.SlotA, Phase: slots.Trying, LastFailure: old}}
	settled := Health{Version: "v2", Update: &slots.Status{Slot: slots.SlotA, Phase: slots.Settled, LastFailure: old}}
	back := Health{Version: "v1", Update: &slots.Status{Phase: slots.Settled, LastFailure: failed}}
	same := Health{Version: "v1", Update: &slots.Status{Phase: slots.Settled, LastFailure: old}}
	for name, c := range map[string]struct {
		answers []Health
		want    string // of the error; empty: none
	}{
		"it passes": {[]Health{same, {}, trying, settled}, ""}, "it fails": {[]Health{trying, back}, "version v2 was given up, and the agent is v1 again: it hangs"},
		"no result": {[]Health{trying}, "the result of the update is not known"}, "no agent": {[]Health{{}}, "not known"},
	} {
		synctest.Test(t, func(t *testing.T) {
			fetch := func(context.Context) (Health, error) {
				h := c.answers[0]
				c.answers = c.answers[min(1, len(c.answers)-1):]
				if h.Version == "" {
					return h, errNoAgent
				}
				return h, nil
			}
			began := time.Now()
			err := awaitUpdate(context.Background(), &bytes.Buffer{}, "v2", same.Update, fetch)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took > updateTimeout+time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
}

func TestStatus_ShowsUpdates(t *testing.T) {
	var out bytes.Buffer
	writeUpdate(&out, nil)
	if out.Len() > 0 {
		t.Errorf("an agent that was never updated shows %s", &out)
	}
	writeUpdate(&out, &slots.Status{Slot: slots.SlotB, Phase: slots.Trying, LastFailure: &slots.Failure{Version: "v2", Reason: "it hangs"}})
	writeOrder(&out, nil)
	writeOrder(&out, &wire.AgentUpdate{Version: "v3", State: wire.AgentWaiting, Message: "on hold"})
	writeOrder(&out, &wire.AgentUpdate{Version: "v4", IsRevert: true, State: wire.AgentSettled})
	for _, want := range []string{"Rollout   to version v3: Waiting since ", ": on hold\n", "Rollout   back from version v4: Settled since ", "Program   slot b, on trial\n", "Update    version v2 was given up at ", ": it hangs\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the status is %s, want %s", &out, want)
		}
	}
}

// lastRegistration returns what the agent has registered last.
func (s *fakeServer) lastRegistration() wire.Register {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registers[len(s.registers)-1]
}

// keyPolicy returns the path of a policy file with a key for updates.
func keyPolicy(t *testing.T) string {
	t.Helper()
	_, key, err := agentupdate.NewKey()
	must(t, err)
	path := policyFile(t, "{drivers: [rawexec]}")
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(content, "update: {publicKeys: ['"+key+"']}\n"...), 0o644))
	return path
}

func TestOrders_AreReportedInRegistrations(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a policy file must belong to root")
	}
	s := newFakeServer(t)
	c := s.config(openDir(t))
	c.PolicyFile = keyPolicy(t)
	a := startAgent(t, c)
	s.awaitRegistered(1)
	if r := s.lastRegistration(); !r.UpdatesItself || r.AgentUpdate != nil {
		t.Errorf("the agent registers %+v", r)
	}
	waitUntil(t, "an acknowledged heartbeat", func() bool { return a.checkContact() == nil })
	order := &wire.AgentOrder{Rollout: "r", Version: "v7", Artifact: &wire.AgentArtifact{OS: runtime.GOOS, Arch: runtime.GOARCH, Source: "http://127.0.0.1:1/agent", Size: 1, SHA256: strings.Repeat("0a", 32)}}
	await := func(state, message string) {
		t.Helper()
		s.publish(wire.KindResponse, wire.Response{Success: true, RobotID: robot, AgentOrder: order}, false)
		waitUntil(t, "the agent to report "+state, func() bool {
			u := s.lastRegistration().AgentUpdate
			return u != nil && u.Rollout == "r" && u.State == state && strings.Contains(u.Message, message)
		})
	}
	must(t, a.local.Write(wire.LocalState{Holds: []wire.Hold{{ID: "1", By: "alice (uid 1000)", Reason: "a visit"}}}))
	await(wire.AgentWaiting, "the robot is on hold by alice (uid 1000): a visit; end the hold with k8s4r-agent release")
	must(t, a.local.Write(wire.LocalState{Holds: []wire.Hold{{ID: "2", UID: "t1", By: "alice (uid 1000)", Reason: "this task"}}}))
	await(wire.AgentFailed, "signature:")
	a.stop()
	s.setFields(func() { s.registers = nil })
	startAgent(t, c)
	s.awaitRegistered(1)
	waitUntil(t, "the next agent to report it", func() bool {
		r := s.lastRegistration()
		return r.AgentUpdate != nil && r.AgentUpdate.State == wire.AgentFailed && r.UpdatesItself
	})
}

func TestOrders_AgentsWithoutAKeyRegisterThat(t *testing.T) {
	s := newFakeServer(t)
	startAgent(t, s.config(t.TempDir()))
	s.awaitRegistered(1)
	if s.lastRegistration().UpdatesItself {
		t.Error("an agent without a key registers that it updates itself")
	}
}
