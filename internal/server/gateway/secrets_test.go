package bridge

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
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/testkit/docagent"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
	"k8s4r.io/k8s4r/internal/wire"
)

// password is what must be seen nowhere but in a dispatch.
const password = "hunter2-never-written"

func secretOf(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// needy is a task that is bound to r1 and takes PASSWORD from the key password of
// the Secret db.
func needy(name string) *robotv1.Task {
	t := bound(name, "r1")
	t.Spec.SecretEnv = map[string]robotv1.SecretKey{"PASSWORD": {SecretName: "db", Key: "password"}}
	return t
}

// dispatched are the values of the last dispatch of the task.
func (l *listener) dispatched(task *robotv1.Task) (values wire.Secrets, times int) {
	for _, payload := range l.payloads(wire.RobotTopic("r1", wire.KindDispatch)) {
		if d, err := wire.Decode[wire.Dispatch](payload); err == nil && d.Task.Metadata.UID == string(task.UID) && d.Action == wire.ActionCreate {
			values, times = d.Secrets, times+1
		}
	}
	return values, times
}

// awaitDispatch waits until the last dispatch of the task has these values alone. The
// listener has a connection of its own, and may hear later than the robot.
func (l *listener) awaitDispatch(t *testing.T, task *robotv1.Task, want wire.Secrets) {
	t.Helper()
	eventually(t, "a dispatch with the values alone", func() bool { got, _ := l.dispatched(task); return maps.Equal(got, want) })
}

// warnedOf tells whether an event on the object says all of this.
func (s *system) warnedOf(name string, words ...string) bool {
	return slices.ContainsFunc(s.warned(), func(w string) bool {
		return strings.HasPrefix(w, name+": ") && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(w, word) })
	})
}

func TestSecretsTravelBesideTheTaskAndAreSeenNowhereElse(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": password, "other": "unasked-for"}))
	s.approve()
	hears := s.listener("k8s4r/#")
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	task := s.create(needy("t1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	hears.awaitDispatch(t, task, wire.Secrets{"PASSWORD": password})
	object, err := json.Marshal(s.task("t1"))
	if err != nil || bytes.Contains(object, []byte(password)) {
		t.Errorf("the Task says %s, %v", object, err)
	}
	for topic, payloads := range hears.everything() {
		if topic != wire.RobotTopic("r1", wire.KindDispatch) && bytes.Contains(bytes.Join(payloads, nil), []byte(password)) {
			t.Errorf("%s says %s", topic, payloads)
		}
	}
	if said := s.retained(); bytes.Contains(said, []byte(password)) {
		t.Errorf("a retained message says %s", said)
	}
	if said := strings.Join(append(s.warned(), s.logged()...), "\n"); strings.Contains(said, password) {
		t.Errorf("logs and events say %s", said)
	}
}

// waitsFor is the task's condition SecretsReady. Nil: it has none.
func (s *system) waitsFor(name string) *metav1.Condition {
	return meta.FindStatusCondition(s.task(name).Status.Conditions, robotv1.ConditionSecretsReady)
}

// retained is all that a client hears which comes late.
func (s *system) retained() []byte {
	late := s.listener("k8s4r/#")
	list := wire.RobotTopic("r1", wire.KindState)
	eventually(s.t, "the broker has a list for r1", func() bool { _, n := late.heard(list); return n > 0 })
	var all []byte
	for _, payloads := range late.everything() {
		all = append(all, bytes.Join(payloads, nil)...)
	}
	return all
}

func TestATaskWaitsForItsSecretAndGoesOnWhenItIsThere(t *testing.T) {
	for name, row := range map[string]struct {
		before []*corev1.Secret
		says   []string
	}{
		"there is no Secret": {nil, []string{"SecretMissing", "secretEnv PASSWORD", "no Secret db"}},
		"it has not the key": {[]*corev1.Secret{secretOf("db", map[string]string{"pasword": password})}, []string{"SecretMissing", "secretEnv PASSWORD", "Secret db has no key password"}},
		"it is no text":      {[]*corev1.Secret{secretOf("db", map[string]string{"password": password + "\xff"})}, []string{"SecretUnusable", "key password of the Secret db is no text", "base64"}},
		"it has a NUL":       {[]*corev1.Secret{secretOf("db", map[string]string{"password": password + "\x00"})}, []string{"SecretUnusable", "key password of the Secret db is no text"}},
		"it is more than Linux takes": {[]*corev1.Secret{secretOf("db", map[string]string{"password": strings.Repeat("x", 128<<10)})},
			[]string{"SecretUnusable", "key password of the Secret db has 131072 bytes", "at most 131062"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.approve()
			for _, secret := range row.before {
				if err := s.api.Create(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			hears := s.listener("k8s4r/#")
			r := s.sim(simrobot.Config{RobotID: "r1"})
			defer r.Stop()
			task := s.create(needy("t1"))
			eventually(t, "an event says what the task waits for", func() bool { return s.warnedOf("t1", row.says...) })
			eventually(t, "it is looked for again and again", func() bool { return s.secretReads() > 4 })
			if n := s.writesTo("t1"); n != 1 || len(s.warned()) != 1 {
				t.Errorf("to say so took %d writes and %d events", n, len(s.warned()))
			}
			if c := s.waitsFor("t1"); c == nil || c.Status != metav1.ConditionFalse || c.Reason != row.says[0] || !strings.Contains(c.Message, row.says[1]) {
				t.Errorf("its condition is %+v", c)
			}
			if _, n := hears.dispatched(task); n > 0 || s.state("t1") != lifecycle.TaskDispatching {
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
			if c := s.waitsFor("t1"); c != nil {
				t.Errorf("it still says %+v", c)
			}
			hears.awaitDispatch(t, task, wire.Secrets{"PASSWORD": "now"})
			if said := strings.Join(append(s.warned(), s.logged()...), "\n"); strings.Contains(said, password) {
				t.Errorf("logs and events say %s", said)
			}
		})
	}
}

func TestAServerThatMayNotReadSecretsSaysHowToPermitIt(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": password}))
	s.set(func() { s.forbids = true })
	s.approve()
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	s.create(needy("t1"))
	s.create(bound("t2", "r1"))
	eventually(t, "an event has the command", func() bool {
		return s.warnedOf("t1", "SecretForbidden", "kubectl create rolebinding k8s4r-secret-reader --clusterrole=k8s4r-secret-reader "+
			"--serviceaccount=k8s4r-system:k8s4r-server --namespace="+namespace)
	})
	eventually(t, "a task without secrets goes by", func() bool { return s.state("t2") == lifecycle.TaskCompleted })
	s.set(func() { s.forbids = false })
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
}

func TestOptionalSecretsMayBeMissing(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": password}))
	s.approve()
	hears := s.listener("k8s4r/#")
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	task := needy("t1")
	task.Spec.SecretEnv["NO_SECRET"] = robotv1.SecretKey{SecretName: "none", Key: "password", Optional: true}
	task.Spec.SecretEnv["NO_KEY"] = robotv1.SecretKey{SecretName: "db", Key: "none", Optional: true}
	s.create(task)
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	hears.awaitDispatch(t, task, wire.Secrets{"PASSWORD": password})
}

func TestTheNextAttemptHasWhatTheSecretHasThen(t *testing.T) {
	s := start(t, secretOf("db", map[string]string{"password": "first"}))
	s.approve()
	hears := s.listener("k8s4r/#")
	r := s.sim(simrobot.Config{RobotID: "r1"})
	defer r.Stop()
	task := s.create(needy("t1"))
	eventually(t, "t1 completes", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	if err := s.api.Update(t.Context(), secretOf("db", map[string]string{"password": "second"})); err != nil {
		t.Fatal(err)
	}
	s.edit("t1", func(st *robotv1.TaskStatus) {
		st.State, st.Attempt = string(lifecycle.TaskDispatching), 2
		st.Attempts = append(st.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "r1"})
	})
	eventually(t, "t1 completes once more", func() bool { return s.state("t1") == lifecycle.TaskCompleted })
	hears.awaitDispatch(t, task, wire.Secrets{"PASSWORD": "second"})
}

func TestWhatNoRobotCanBeSentEndsWithASentence(t *testing.T) {
	t.Run("values that fit no message", func(t *testing.T) {
		data, task := map[string]string{}, needy("t1")
		for i := range 3 {
			key := fmt.Sprint("key", i)
			data[key], task.Spec.SecretEnv[fmt.Sprint("V", i)] = strings.Repeat(password, 5000), robotv1.SecretKey{SecretName: "db", Key: key}
		}
		delete(task.Spec.SecretEnv, "PASSWORD")
		s := start(t, secretOf("db", data))
		s.approve()
		r := s.sim(simrobot.Config{RobotID: "r1"})
		defer r.Stop()
		s.create(task)
		eventually(t, "the attempt ends", func() bool { return s.state("t1") == lifecycle.TaskExited })
		if got := s.task("t1").Status; got.Reason != wire.ReasonRejected || !strings.Contains(got.Message, "The task and the values of its secretEnv do not fit one message") {
			t.Errorf("it says %s: %s", got.Reason, got.Message)
		}
		if said := strings.Join(append(s.warned(), s.logged()...), "\n"); strings.Contains(said, password) {
			t.Errorf("logs and events say %s", said)
		}
	})
	t.Run("a robot whose agent speaks the document's protocol", func(t *testing.T) {
		s := start(t, secretOf("db", map[string]string{"password": password}))
		s.approve()
		a := s.doc(docagent.Config{RobotID: "r1"})
		task := s.create(needy("t1"))
		eventually(t, "the attempt ends", func() bool { return s.state("t1") == lifecycle.TaskExited })
		if got := s.task("t1").Status; got.Reason != wire.ReasonRejected || !strings.Contains(got.Message, "takes no secretEnv") {
			t.Errorf("it says %s: %s", got.Reason, got.Message)
		}
		if n := a.Runs()[string(task.UID)]; n > 0 {
			t.Errorf("ran %d times", n)
		}
	})
}

func TestARobotThatIsBackIsAskedWithoutSecrets(t *testing.T) {
	asked := 0
	d, v, sent := quietLink()
	d.fetch = func(types.UID) { asked++ }
	for n, row := range []struct {
		ran  bool
		want int
	}{{true, 0}, {false, 1}} {
		task := taskIn(lifecycle.TaskUnknown, 1)
		task.UID = types.UID(fmt.Sprint(n))
		task.Spec.SecretEnv = needy("t").Spec.SecretEnv
		if row.ran {
			task.Status.Attempts = []robotv1.TaskAttempt{{Attempt: 1, Robot: "r1", StartedAt: &metav1.MicroTime{Time: clock}}}
		}
		*sent, asked = 0, 0
		v.deliverTask(at(task, uint64(n+1)))
		d.changed(task.UID)
		if !d.fireOne() || asked != row.want || *sent != 1-row.want {
			t.Errorf("ran %v: Secrets were asked for %d times, and it was sent %d times", row.ran, asked, *sent)
		}
	}
}

func TestATaskIsNeverSentWithoutTheSecretsThatItAsksFor(t *testing.T) {
	d, v, sent := quietLink()
	task := at(needy("t"), 1)
	v.deliverTask(task)
	if d.send(task, wire.ActionCreate) || *sent != 0 {
		t.Error("sent although nobody has read them")
	}
	if !d.sendWith(task, wire.ActionCreate, wire.Secrets{}) || *sent != 1 {
		t.Error("not sent although all that can be missing is optional")
	}
}

func TestValuesThatComeLateAreNotSent(t *testing.T) {
	d, v, sent := quietLink()
	d.fetch = func(types.UID) {}
	first := at(needy("t"), 1)
	v.deliverTask(first)
	d.changed(first.UID)
	second := at(first.DeepCopy(), 2)
	second.Status.Attempt = 2
	second.Status.Attempts = append(second.Status.Attempts, robotv1.TaskAttempt{Attempt: 2, Robot: "r1"})
	v.deliverTask(second)
	d.changed(second.UID)
	if d.deliver(first, wire.Secrets{"A": "1"}); *sent != 0 {
		t.Error("those of the first attempt are sent to the second")
	}
	if d.deliver(second, wire.Secrets{"A": "1"}); *sent != 1 {
		t.Error("those of the second attempt are not sent")
	}
	d.answered(report{robot: "r1", uid: second.UID, attempt: 2})
	if d.deliver(second, wire.Secrets{"A": "1"}); *sent != 1 {
		t.Error("they are sent to a robot that has answered")
	}
}

func TestADocumentAgentsListNamesNoTaskWithSecrets(t *testing.T) {
	v := newView()
	v.deliverTask(at(needy("t1"), 1))
	v.deliverTask(at(bound("t2", "r1"), 2))
	for speaks, want := range map[string]int{robotv1.ProtocolDocument: 1, robotv1.ProtocolK8s4r: 2} {
		l := &lists{view: v, dialect: func(string) string { return speaks }}
		if l.init(); len(l.unfinished("r1")) != want {
			t.Errorf("%s: %d tasks are named, want %d", speaks, len(l.unfinished("r1")), want)
		}
	}
}
