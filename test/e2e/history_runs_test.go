package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/faultnet"
)

// TestHistory_ShowsRunsMadeWithoutContact restarts a task on a robot before, during and after an outage of
// its connection. The history has each run once, and the outage.
func TestHistory_ShowsRunsMadeWithoutContact(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "0", "--without", "node,console")
	way := faultnet.New(t, hostPort(s.MQTTSURL))
	s.robotWith("r1", nil)
	// A robot has contact for three heartbeats after the last answer: on a busy machine seconds are too few.
	r1 := agent(t, s, "r1", "--mqtt-url", "mqtts://"+way.Addr(), "--heartbeat", "10s")
	s.awaitRobot("r1", "Online", 20*time.Second)
	starts, name := s.file("tunnel"), "tunnel-main-0-work"
	s.create(on("r1", restarted("tunnel", v1alpha1.RestartPolicy{Attempts: 9, Mode: v1alpha1.RestartDelay}, starts, "exec sleep 600")))
	s.killRun(starts, 1)
	s.awaitRuns(starts, 2)
	s.awaitFirstAttempt(name, 2)

	way.RefuseConnections()
	r1.awaitSays(t, 20*time.Second, "no connection to the MQTT broker")
	for run := 2; run <= 4; run++ {
		s.killRun(starts, run)
	}
	s.awaitRuns(starts, 5)
	if a := s.task(name).Status.Attempts[0]; a.RunCount != 2 {
		t.Errorf("it has contact: %+v", a)
	}

	way.RestoreNetwork()
	s.awaitContactRecord(name, 5)
	const killed, outage = `%d +\S+Z +\S+Z +137 \(signal 9\) +Signaled\n`, `-- out of contact \S+Z to \S+Z, 3 runs \(2 to 4\)\n`
	before := `^Runs of task ` + name + `, attempt 1:\nRUN +STARTED +ENDED +EXIT +REASON\n` +
		fmt.Sprintf(killed, 1) + outage + fmt.Sprintf(killed, 2) + fmt.Sprintf(killed, 3) + fmt.Sprintf(killed, 4)
	const running = `%d +\S+Z +- +- +-\n$`
	s.awaitOutput(before+fmt.Sprintf(running, 5), "history", name)
	s.killRun(starts, 5)
	s.awaitRuns(starts, 6)
	s.awaitOutput(before+fmt.Sprintf(killed, 5)+fmt.Sprintf(running, 6), "history", name)
}

// awaitContactRecord blocks until the history has that the robot had contact again during a run.
func (s *system) awaitContactRecord(task string, run int64) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, 40*time.Second, fmt.Sprintf("a record of contact during run %d", run), func() error {
		out, err := s.RunProgram("k8s4r", "history", task, "-o", "json")
		var list struct{ Items []runlog.Page }
		if err := errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Gaps) == 0 {
			return fmt.Errorf("it prints %s", out)
		}
		p := list.Items[0]
		gap, last := p.Gaps[len(p.Gaps)-1], p.Items[len(p.Items)-1]
		if gap.Reason != runlog.OutOfContact || last.Run != run || gap.To == nil || !gap.To.After(*last.StartedAt) {
			return fmt.Errorf("it prints %s", out)
		}
		return nil
	})
}
