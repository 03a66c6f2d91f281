package agent

import (
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
)

// onDisk gives the task an ephemeralDisk and makes it part of a replica.
func onDisk(d wire.EphemeralDisk, group string) func(*wire.Task) {
	return func(t *wire.Task) {
		t.Spec.EphemeralDisk = &d
		t.Metadata.Labels = map[string]string{wire.LabelTaskIndex: "0"}
		t.Metadata.Owners = []wire.Owner{{UID: "job"}, {UID: group, Controller: true}}
	}
}

// scanOften shortens the pause between scans of disks.
func scanOften(c *runner.Config, _ *transport.ConnectionConfig) {
	c.QuotaInterval = 5 * time.Millisecond
}

func TestQuota_FailsReplicaOverItsQuota(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		change func(*wire.Task)
	}{
		"on the disk that it shares": {"head -c 3000000 /dev/zero > $K8S4R_ALLOC_DIR/big", func(*wire.Task) {}},
		"in the task's directory":    {"head -c 3000000 /dev/zero > $HOME/big", func(*wire.Task) {}},
		"in /tmp":                    {"head -c 3000000 /dev/zero > /tmp/big", isolated},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			startAgent(t, s.config(dir), scanOften)
			s.awaitRegistered(1)
			disk := onDisk(wire.EphemeralDisk{SizeMB: 2}, "g")
			s.dispatch(shell("t1", c.script+"; exec sleep 600", disk, c.change), 1)
			s.dispatch(shell("t2", "exec sleep 600", disk), 1)
			s.dispatch(shell("t3", "exec sleep 600", onDisk(wire.EphemeralDisk{SizeMB: 2}, "another")), 1)
			for _, uid := range []string{"t1", "t2"} { // they share it
				end := s.awaitEnd(uid, 1)
				if end.State != wire.ReportFailed || end.Reason != wire.ReasonDiskQuotaExceeded || !strings.Contains(end.Message, "ephemeralDisk.sizeMB") {
					t.Errorf("%s ended as %+v, want failed for DiskQuotaExceeded", uid, end)
				}
			}
			s.awaitRunning("t3", 1)
			if reports := s.reportsAbout("t3", 1); reports[len(reports)-1].IsTerminal() {
				t.Errorf("another replica ended as %+v", reports)
			}
		})
	}
}

// Tasks of an earlier agent keep their quotas.
func TestQuota_SurvivesAgentRestart(t *testing.T) {
	s, dir := newFakeServer(t), t.TempDir()
	c := s.config(dir)
	c.OnStop = OnStopLeave
	a := startAgent(t, c)
	s.awaitRegistered(1)
	s.dispatch(shell("t1", "head -c 3000000 /dev/zero > $K8S4R_ALLOC_DIR/big; exec sleep 600", onDisk(wire.EphemeralDisk{SizeMB: 2}, "g")), 1)
	s.awaitRunning("t1", 1)
	a.stop()
	startAgent(t, s.config(dir), scanOften)
	if end := s.awaitEnd("t1", 1); end.Reason != wire.ReasonDiskQuotaExceeded {
		t.Errorf("ended as %+v", end)
	}
}

func TestEphemeralDisk_StickyIsKept(t *testing.T) {
	for _, driver := range []string{"raw_exec", "exec"} {
		t.Run(driver, func(t *testing.T) {
			s, dir := newFakeServer(t), t.TempDir()
			a := startAgent(t, s.config(dir))
			s.awaitRegistered(1)
			script := "cat $K8S4R_ALLOC_DIR/number; echo $K8S4R_ATTEMPT > $K8S4R_ALLOC_DIR/number"
			task := func(uid, group string) wire.Task {
				return shell(uid, script, onDisk(wire.EphemeralDisk{Sticky: true}, group), func(t *wire.Task) { t.Spec.Driver = driver })
			}
			s.dispatch(task("t1", "g"), 1)
			s.awaitEnd("t1", 1)
			a.stop()
			startAgent(t, s.config(dir))
			s.awaitRegistered(2)
			s.dispatch(task("t1", "g"), 2)
			s.dispatch(task("t2", "later"), 1)
			s.awaitEnd("t1", 2)
			s.awaitEnd("t2", 1)
			if out := output(t, dir, "t1", 2, record.Stdout); out != "1\n" {
				t.Errorf("the next attempt finds %q, want 1", out)
			}
			if out := output(t, dir, "t2", 1, record.Stdout); out != "" {
				t.Errorf("a group of the same name that was created again finds %q", out)
			}
		})
	}
}
