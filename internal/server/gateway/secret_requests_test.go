package gateway

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// requestSecrets reports as an agent that was restarted during attempt 1 of a task.
func (l *listener) requestSecrets(robotID string, task *robotv1.Task, seq uint64) {
	l.t.Helper()
	payload, err := json.Marshal(wire.Status{
		TaskUID: string(task.UID), RobotName: robotID, Attempt: 1, Seq: seq, State: wire.ReportRunning, UpdatedAt: time.Now(), Run: 1, NeedsSecrets: true,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.publishPayload(wire.TaskTopic(robotID, string(task.UID), wire.KindStatus), payload)
}

func TestSecrets_SentAgainOnRequest(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": "first"}))
	s.approveRobots()
	received := s.newListener("k8s4r/#")
	for _, id := range []string{"r1", "r2"} {
		r := s.startRobot(simrobot.Config{RobotID: id, RestartsTasks: true, Run: -1})
		defer r.Stop()
	}
	task := s.createTask(newTaskWithSecret("t1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	reads := s.secretReads()
	if err := s.api.Update(t.Context(), secretOf("db", map[string]string{"password": password})); err != nil {
		t.Fatal(err)
	}
	received.requestSecrets("r2", task, 100) // it is not the robot of the task
	received.requestSecrets("r1", task, 100)
	received.requestSecrets("r1", task, 101)
	received.awaitDispatch(t, task, wire.Secrets{"PASSWORD": password})
	if _, n := received.lastDispatch(task); n != 2 || s.secretReads() != reads+1 {
		t.Errorf("dispatched %d times, want 2; the Secret was read %d times, want once more than %d", n, s.secretReads(), reads)
	}
	if got := s.task("t1").Status; got.State != string(lifecycle.TaskRunning) || got.Attempt != 1 {
		t.Errorf("the task is %s in attempt %d", got.State, got.Attempt)
	}
}

// The values of a running task may be gone, too.
func TestSecrets_RequestExplainsWhatIsMissing(t *testing.T) {
	secret := secretOf("db", map[string]string{"password": "first"})
	s := start(t, secret)
	s.approveRobots()
	received := s.newListener("k8s4r/#")
	r := s.startRobot(simrobot.Config{RobotID: "r1", RestartsTasks: true, Run: -1})
	defer r.Stop()
	task := s.createTask(newTaskWithSecret("t1"))
	eventually(t, "t1 runs", func() bool { return s.state("t1") == lifecycle.TaskRunning })
	if err := s.api.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	received.requestSecrets("r1", task, 100)
	eventually(t, "the condition has the reason", func() bool {
		c := s.secretsCondition("t1")
		return c != nil && c.Reason == reasonSecretMissing && s.hasWarning("t1", reasonSecretMissing)
	})
	if err := s.api.Create(t.Context(), secretOf("db", map[string]string{"password": password})); err != nil {
		t.Fatal(err)
	}
	received.requestSecrets("r1", task, 101)
	received.awaitDispatch(t, task, wire.Secrets{"PASSWORD": password})
	eventually(t, "the condition is gone", func() bool { return s.secretsCondition("t1") == nil })
}

func TestSecretRequest_ConcernsTheCurrentAttempt(t *testing.T) {
	request := secretRequest{uid: "u", attempt: 1, robot: "r1"}
	for name, c := range map[string]struct {
		change func(t *robotv1.Task)
		want   bool
	}{
		"a task that runs":           {func(*robotv1.Task) {}, true},
		"of a robot without contact": {func(t *robotv1.Task) { t.Status.State = string(lifecycle.TaskUnknown) }, true},
		"a newer attempt":            {func(t *robotv1.Task) { t.Status.Attempt = 2 }, false},
		"on another robot":           {func(t *robotv1.Task) { t.Spec.TargetRobot, t.Status.Attempts[0].Robot = "r2", "r2" }, false},
		"a task that has ended":      {func(t *robotv1.Task) { t.Status.State = string(lifecycle.TaskCompleted) }, false},
		"a task that is stopped":     {func(t *robotv1.Task) { t.Status.Reason = robotv1.ReasonStopping }, false},
		"a task without secretEnv":   {func(t *robotv1.Task) { t.Spec.SecretEnv = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			task := taskIn(lifecycle.TaskRunning, 1)
			task.UID, task.Spec.SecretEnv = "u", newTaskWithSecret("t").Spec.SecretEnv
			c.change(task)
			d, v, sent := newTestDownlink()
			v.deliverTask(atVersion(task, 1))
			if got := request.isOpen(task); got != c.want {
				t.Errorf("open: %v, want %v", got, c.want)
			}
			if d.sendRequestedSecrets(request, wire.Secrets{}); (*sent == 1) != c.want {
				t.Errorf("sent %d times", *sent)
			}
		})
	}
	if request.isOpen(nil) || (secretRequest{}).isOpen(taskIn(lifecycle.TaskRunning, 0)) {
		t.Error("open without a task or without a request")
	}
}

func TestSecretRequests_DropKeepsANewerOne(t *testing.T) {
	var all secretRequests
	first, second := secretRequest{types.UID("u"), 1, "r1"}, secretRequest{types.UID("u"), 2, "r1"}
	all.put(first)
	all.put(second)
	if all.drop(first); all.get("u") != second {
		t.Error("the newer request was dropped")
	}
	if all.drop(second); all.get("u") != (secretRequest{}) || len(all.all) != 0 {
		t.Error("the request was kept")
	}
}
