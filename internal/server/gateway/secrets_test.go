package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/legacyagent"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// password must appear nowhere but in a dispatch.
const password = "hunter2-never-written"

func secretOf(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// newTaskWithSecret returns a task on r1 that gets PASSWORD from the key password of the Secret db.
func newTaskWithSecret(name string) *robotv1.Task {
	t := newBoundTask(name, "r1")
	t.Spec.SecretEnv = map[string]robotv1.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}}
	return t
}

// lastDispatch returns the secrets of the task's last dispatch and the number of its dispatches.
func (l *listener) lastDispatch(task *robotv1.Task) (values wire.Secrets, times int) {
	for _, payload := range l.payloads(wire.RobotTopic("r1", wire.KindDispatch)) {
		if d, err := wire.Decode[wire.Dispatch](payload); err == nil && d.Task.Metadata.UID == string(task.UID) && d.Action == wire.ActionCreate {
			values, times = d.Secrets, times+1
		}
	}
	return values, times
}

// awaitDispatch waits until the task's last dispatch has exactly these secrets. The listener has
// its own connection and may receive it later than the robot.
func (l *listener) awaitDispatch(t *testing.T, task *robotv1.Task, want wire.Secrets) {
	t.Helper()
	eventually(t, "a dispatch with the values alone", func() bool { got, _ := l.lastDispatch(task); return maps.Equal(got, want) })
}

// hasWarning reports whether an event of the object contains all texts.
func (s *system) hasWarning(name string, texts ...string) bool {
	return slices.ContainsFunc(s.warned(), func(w string) bool {
		return strings.HasPrefix(w, name+": ") && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(w, text) })
	})
}

func TestSecrets_AppearOnlyInDispatch(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": password, "other": "unasked-for"}))
	s.approveRobots()
	received := s.newListener("k8s4r/#")
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	task := s.createTask(newTaskWithSecret("t1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	received.awaitDispatch(t, task, wire.Secrets{"PASSWORD": password})
	object, err := json.Marshal(s.task("t1"))
	if err != nil || bytes.Contains(object, []byte(password)) {
		t.Errorf("the Task contains the secret: %s, %v", object, err)
	}
	for topic, payloads := range received.allPayloads() {
		if topic != wire.RobotTopic("r1", wire.KindDispatch) && bytes.Contains(bytes.Join(payloads, nil), []byte(password)) {
			t.Errorf("%s contains the secret: %s", topic, payloads)
		}
	}
	if retained := s.readRetained(); bytes.Contains(retained, []byte(password)) {
		t.Errorf("a retained message contains the secret: %s", retained)
	}
	if output := strings.Join(append(s.warned(), s.logged()...), "\n"); strings.Contains(output, password) {
		t.Errorf("logs and events contain the secret: %s", output)
	}
}

// secretsCondition returns the task's condition SecretsReady, or nil if it has none.
func (s *system) secretsCondition(name string) *metav1.Condition {
	return meta.FindStatusCondition(s.task(name).Status.Conditions, robotv1.ConditionSecretsReady)
}

// readRetained returns all retained messages.
func (s *system) readRetained() []byte {
	late := s.newListener("k8s4r/#")
	list := wire.RobotTopic("r1", wire.KindState)
	eventually(s.t, "the broker has a list for r1", func() bool { _, n := late.lastPayload(list); return n > 0 })
	var all []byte
	for _, payloads := range late.allPayloads() {
		all = append(all, bytes.Join(payloads, nil)...)
	}
	return all
}

func TestSecrets_TaskWaitsForMissingSecret(t *testing.T) {
	for name, row := range map[string]struct {
		before []*corev1.Secret
		expect []string
	}{
		"there is no Secret": {nil, []string{"SecretMissing", "secretEnv PASSWORD", "Secret db does not exist"}},
		"it lacks the key":   {[]*corev1.Secret{secretOf("db", map[string]string{"pasword": password})}, []string{"SecretMissing", "secretEnv PASSWORD", "Secret db has no key password"}},
		"it is not text":     {[]*corev1.Secret{secretOf("db", map[string]string{"password": password + "\xff"})}, []string{"SecretUnusable", "key password of Secret db is not valid UTF-8 text", "base64"}},
		"it has a NUL":       {[]*corev1.Secret{secretOf("db", map[string]string{"password": password + "\x00"})}, []string{"SecretUnusable", "key password of Secret db is not valid UTF-8 text"}},
		"it is longer than Linux accepts": {[]*corev1.Secret{secretOf("db", map[string]string{"password": strings.Repeat("x", 128<<10)})},
			[]string{"SecretUnusable", "key password of Secret db has 131072 bytes", "at most 131062"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.approveRobots()
			for _, secret := range row.before {
				if err := s.api.Create(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			received := s.newListener("k8s4r/#")
			r := s.startRobot(simrobot.Config{RobotID: "r1"})
			defer r.Stop()
			task := s.createTask(newTaskWithSecret("t1"))
			eventually(t, "there is an event with the reason", func() bool { return s.hasWarning("t1", row.expect...) })
			eventually(t, "it is looked for again and again", func() bool { return s.secretReads() > 4 })
			if n := s.writesTo("t1"); n != 1 || len(s.warned()) != 1 {
				t.Errorf("%d writes and %d events, want one each", n, len(s.warned()))
			}
			if c := s.secretsCondition("t1"); c == nil || c.Status != metav1.ConditionFalse || c.Reason != row.expect[0] || !strings.Contains(c.Message, row.expect[1]) {
				t.Errorf("its condition is %+v", c)
			}
			if _, n := received.lastDispatch(task); n > 0 || s.state("t1") != lifecycle.TaskDispatching {
				t.Errorf("dispatched %d times, the task is %s", n, s.state("t1"))
			}
			for _, old := range row.before {
				if err := s.api.Delete(t.Context(), old); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.api.Create(t.Context(), secretOf("db", map[string]string{"password": "now"})); err != nil {
				t.Fatal(err)
			}
			eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
			if c := s.secretsCondition("t1"); c != nil {
				t.Errorf("the condition is still %+v", c)
			}
			received.awaitDispatch(t, task, wire.Secrets{"PASSWORD": "now"})
			if output := strings.Join(append(s.warned(), s.logged()...), "\n"); strings.Contains(output, password) {
				t.Errorf("logs and events contain the secret: %s", output)
			}
		})
	}
}

func TestGateway_ExplainsForbiddenSecrets(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": password}))
	s.set(func() { s.forbids = true })
	s.approveRobots()
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	s.createTask(newTaskWithSecret("t1"))
	s.createTask(newBoundTask("t2", "r1"))
	eventually(t, "an event has the command", func() bool {
		return s.hasWarning("t1", "SecretForbidden", "kubectl create rolebinding k8s4r-secret-reader --clusterrole=k8s4r-secret-reader "+
			"--serviceaccount=k8s4r-system:k8s4r-server --namespace="+namespace)
	})
	eventually(t, "a task without secrets goes by", func() bool { return s.state("t2") == lifecycle.TaskCompleted })
	s.set(func() { s.forbids = false })
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
}

func TestSecrets_OptionalMayBeMissing(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": password}))
	s.approveRobots()
	received := s.newListener("k8s4r/#")
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	task := newTaskWithSecret("t1")
	task.Spec.SecretEnv["NO_SECRET"] = robotv1.SecretKey{SecretName: "none", Key: "password", Optional: true}
	task.Spec.SecretEnv["NO_KEY"] = robotv1.SecretKey{SecretName: "db", Key: "none", Optional: true}
	s.createTask(task)
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	received.awaitDispatch(t, task, wire.Secrets{"PASSWORD": password})
}

func TestGateway_NextAttemptGetsCurrentSecret(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": "first"}))
	s.approveRobots()
	received := s.newListener("k8s4r/#")
	r := s.startRobot(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	task := s.createTask(newTaskWithSecret("t1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if err := s.api.Update(t.Context(), secretOf("db", map[string]string{"password": "second"})); err != nil {
		t.Fatal(err)
	}
	s.editStatus("t1", func(st *robotv1.TaskStatus) {
		st.State, st.Attempt = string(lifecycle.TaskDispatching), 2
		st.Attempts = append(st.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "r1"})
	})
	eventually(t, "t1 completes once more", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	received.awaitDispatch(t, task, wire.Secrets{"PASSWORD": "second"})
}

func TestGateway_FailsTaskThatExceedsMessageSize(t *testing.T) {
	t.Run("values that fit no message", func(t *testing.T) {
		data, task := map[string]string{}, newTaskWithSecret("t1")
		for i := range 3 {
			key := fmt.Sprint("key", i)
			data[key], task.Spec.SecretEnv[fmt.Sprint("V", i)] = strings.Repeat(password, 5000), robotv1.SecretKey{SecretName: "db", Key: key}
		}
		delete(task.Spec.SecretEnv, "PASSWORD")
		s := start(t, secretOf("db", data))
		s.approveRobots()
		r := s.startRobot(simrobot.Config{RobotID: "r1"})
		defer r.Stop()
		s.createTask(task)
		eventually(t, "the attempt ends", func() bool { return s.state("t1") == lifecycle.TaskExited })
		if got := s.task("t1").Status; got.Reason != wire.ReasonRejected || !strings.Contains(got.Message, "the task and the values of its secretEnv do not fit into one message") {
			t.Errorf("reason and message: %s: %s", got.Reason, got.Message)
		}
		if output := strings.Join(append(s.warned(), s.logged()...), "\n"); strings.Contains(output, password) {
			t.Errorf("logs and events contain the secret: %s", output)
		}
	})
	t.Run("a robot with a legacy agent", func(t *testing.T) {
		s := start(t, secretOf("db", map[string]string{"password": password}))
		s.approveRobots()
		a := s.startLegacyAgent(legacyagent.Config{RobotID: "r1"})
		task := s.createTask(newTaskWithSecret("t1"))
		eventually(t, "the attempt ends", func() bool { return s.state("t1") == lifecycle.TaskExited })
		if got := s.task("t1").Status; got.Reason != wire.ReasonRejected || !strings.Contains(got.Message, "does not support secretEnv") {
			t.Errorf("reason and message: %s: %s", got.Reason, got.Message)
		}
		if n := a.RunCounts()[string(task.UID)]; n > 0 {
			t.Errorf("ran %d times", n)
		}
	})
}

func TestDownlink_StartedTaskNeedsNoSecrets(t *testing.T) {
	requested := 0
	d, v, sent := newTestDownlink()
	d.fetchSecrets = func(types.UID) { requested++ }
	for n, row := range []struct {
		ran  bool
		want int
	}{{true, 0}, {false, 1}} {
		task := taskIn(lifecycle.TaskUnknown, 1)
		task.UID = types.UID(fmt.Sprint(n))
		task.Spec.SecretEnv = newTaskWithSecret("t").Spec.SecretEnv
		if row.ran {
			task.Status.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: "r1", StartedAt: &metav1.MicroTime{Time: clock}}}
		}
		*sent, requested = 0, 0
		v.deliverTask(atVersion(task, uint64(n+1)))
		d.onTaskChanged(task.UID)
		if !d.sendNext() || requested != row.want || *sent != 1-row.want {
			t.Errorf("started %v: secrets were requested %d times, the dispatch was sent %d times", row.ran, requested, *sent)
		}
	}
}

func TestDownlink_NeverSendsTaskWithoutSecrets(t *testing.T) {
	d, v, sent := newTestDownlink()
	task := atVersion(newTaskWithSecret("t"), 1)
	v.deliverTask(task)
	if d.sendTask(task, wire.ActionCreate) || *sent != 0 {
		t.Error("sent although the secrets were not read")
	}
	if !d.sendTaskWith(task, wire.ActionCreate, wire.Secrets{}) || *sent != 1 {
		t.Error("not sent although all missing secrets are optional")
	}
}

func TestDownlink_DropsLateSecrets(t *testing.T) {
	d, v, sent := newTestDownlink()
	d.fetchSecrets = func(types.UID) {}
	first := atVersion(newTaskWithSecret("t"), 1)
	v.deliverTask(first)
	d.onTaskChanged(first.UID)
	second := atVersion(first.DeepCopy(), 2)
	second.Status.Attempt = 2
	second.Status.Attempts = append(second.Status.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "r1"})
	v.deliverTask(second)
	d.onTaskChanged(second.UID)
	if d.sendWithSecrets(first, wire.Secrets{"A": "1"}); *sent != 0 {
		t.Error("the secrets of the first attempt were sent for the second")
	}
	if d.sendWithSecrets(second, wire.Secrets{"A": "1"}); *sent != 1 {
		t.Error("the secrets of the second attempt were not sent")
	}
	d.recordAnswer(report{robot: "r1", uid: second.UID, attempt: 2})
	if d.sendWithSecrets(second, wire.Secrets{"A": "1"}); *sent != 1 {
		t.Error("secrets were sent to a robot that has answered")
	}
}

func TestTaskList_OmitsTasksWithSecretsForLegacyAgent(t *testing.T) {
	v := newObjectIndex()
	v.deliverTask(atVersion(newTaskWithSecret("t1"), 1))
	v.deliverTask(atVersion(newBoundTask("t2", "r1"), 2))
	for protocol, want := range map[string]int{robotv1.ProtocolV1: 1, robotv1.ProtocolV2: 2} {
		l := &taskLists{objects: v, protocolOf: func(string) string { return protocol }}
		l.initMaps()
		l.stateLocked("r1").remembered = l.rememberableLocked("r1", nil)
		if got := len(l.activeTasksLocked("r1")); got != want {
			t.Errorf("%s: %d tasks are named, want %d", protocol, got, want)
		}
	}
}
