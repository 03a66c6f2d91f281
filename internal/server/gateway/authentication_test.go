package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// oneToken accepts every robot that presents it.
type oneToken struct{}

func (oneToken) Redeem(_ context.Context, text, _, _ string) (jointoken.Token, error) {
	if text == "good" {
		return jointoken.Token{Namespace: "hall", Labels: map[string]string{"site": "a"}}, nil
	}
	return jointoken.Token{}, &jointoken.RefusedError{Err: errors.New("the token is bad")}
}

func (o oneToken) CheckUsed(ctx context.Context, text, robot, key string) error {
	_, err := o.Redeem(ctx, text, robot, key)
	return err
}

// newJoinedRobot returns a robot with an accepted key.
func newJoinedRobot(id string) *robotv1.Robot {
	return &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id}, Spec: robotv1.RobotSpec{RobotID: id},
		Status: robotv1.RobotStatus{Identity: &robotv1.RobotIdentity{Accepted: &robotv1.AcceptedIdentity{Key: "sha256:k", By: "Token"}}},
	}
}

func (s *system) countDropped(kind wire.Kind, reason dropReason) float64 {
	s.t.Helper()
	var m dto.Metric
	if err := s.gateway.m.dropped.WithLabelValues(string(kind), string(reason)).Write(&m); err != nil {
		s.t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func (s *system) receiveMessage(topic, payload string) { s.gateway.receive(topic, []byte(payload), "") }

func TestGateway_DropsMessagesOfRobotsThatHaveNotJoined(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, newJoinedRobot("r1"))
	s.receiveMessage(wire.RobotTopic("r2", wire.KindRegister), `{"robotId":"r2"}`)
	s.receiveMessage(wire.TopicRegister, `{"robotId":"r3","token":"good"}`)
	s.receiveMessage(wire.TopicHeartbeat, `{"robotId":"r1"}`)
	if s.countDropped(wire.KindRegister, dropMalformed) != 2 || s.countDropped(wire.KindHeartbeat, dropMalformed) != 1 {
		t.Error("not all of the messages were dropped")
	}
	s.receiveMessage(wire.RobotTopic("r1", wire.KindRegister), `{"robotId":"r1"}`)
	eventually(t, "the message of an authenticated robot is accepted", func() bool { return s.condition("r1", robotv1.ConditionAuthenticated) != "" })
	var all robotv1.RobotList
	if err := s.api.List(t.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("%d robots, %v", len(all.Items), err)
	}
}

// A broker without access control also delivers messages of clients without a certificate. They are
// not accepted for robots that have an accepted key.
func TestGateway_RefusesMessagesOfUnauthenticatedRobot(t *testing.T) {
	unproven := newJoinedRobot("r1")
	unproven.Status.Identity = nil
	legacy := newJoinedRobot("r2")
	legacy.Status.Identity, legacy.Status.Agent = nil, &robotv1.AgentInfo{Protocol: robotv1.ProtocolV1}
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true}, unproven, legacy, newJoinedRobot("r3"))
	for _, id := range []string{"r1", "r2", "r3"} {
		s.receiveMessage(wire.TaskTopic(id, "uid", wire.KindStatus), `{"taskUid":"uid","state":"running"}`)
		s.receiveMessage(wire.TaskTopic(id, "uid", wire.KindLogs), `{}`)
		s.receiveMessage(wire.RobotTopic(id, wire.KindPresence), `{"graceful":true}`) // the last message
	}
	for _, kind := range []wire.Kind{wire.KindPresence, wire.KindStatus, wire.KindLogs} {
		if n := s.countDropped(kind, dropMalformed); n != 1 {
			t.Errorf("%s: %v of three messages were refused, want the one of r1", kind, n)
		}
	}
	if s.gateway.robots.stateOf("r1").disconnectReason != "" || s.gateway.robots.stateOf("r3").disconnectReason == "" {
		t.Error("a message of another client disconnected r1, or the message of r3 did not disconnect it")
	}
}

func TestGateway_RefusesImpersonation(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true}, newJoinedRobot("r1"))
	s.receiveMessage(wire.TopicRegister, `{"robotId":"r1","token":"good"}`)
	s.receiveMessage(wire.TopicHeartbeat, `{"robotId":"r1","token":"good"}`)
	s.receiveMessage(wire.RobotTopic("r1", wire.KindHeartbeat), `{"robotId":"r2"}`)
	s.receiveMessage(wire.TaskTopic("r1", "uid", wire.KindStatus), `{"taskUid":"uid","robotName":"r2","state":"running"}`)
	for kind, want := range map[wire.Kind]float64{wire.KindRegister: 1, wire.KindHeartbeat: 2, wire.KindStatus: 1} {
		if got := s.countDropped(kind, dropImpersonation); got != want {
			t.Errorf("%s: %v are counted, want %v", kind, got, want)
		}
	}
	if w := s.warned(); len(w) != 1 || !strings.Contains(w[0], "this robot, which has one") {
		t.Errorf("the events are %q", w)
	}
	if r := s.robot("r1"); r.Status.LastHeartbeatTime != nil {
		t.Error("the heartbeat of another client was written")
	}
}

// A payload with the id of another robot than its topic is refused and counted in every case, and
// becomes an event.
func TestGateway_RefusesPayloadOfAnotherRobot(t *testing.T) {
	for _, way := range []struct {
		name, topic, payload string
		kind                 wire.Kind
		blamed               string
	}{
		{"a registration", wire.RobotTopic("r1", wire.KindRegister), `{"robotId":"r2"}`, wire.KindRegister, "r1"},
		{"a heartbeat", wire.RobotTopic("r1", wire.KindHeartbeat), `{"robotId":"r2"}`, wire.KindHeartbeat, "r1"},
		{"a report", wire.TaskTopic("r1", "uid", wire.KindStatus), `{"taskUid":"uid","robotName":"r2","state":"running"}`, wire.KindStatus, "r1"},
		{"a registration where all may speak", wire.TopicRegister, `{"robotId":"r2","token":"good"}`, wire.KindRegister, "r2"},
		{"a heartbeat where all may speak", wire.TopicHeartbeat, `{"robotId":"r2","token":"good"}`, wire.KindHeartbeat, "r2"},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true}, newJoinedRobot("r1"), newJoinedRobot("r2"))
			s.receiveMessage(way.topic, way.payload)
			if n := s.countDropped(way.kind, dropImpersonation); n != 1 {
				t.Errorf("%v are counted", n)
			}
			if warnings := s.warned(); len(warnings) != 1 || !strings.HasPrefix(warnings[0], way.blamed+": ImpersonationRefused: ") {
				t.Errorf("the events are %q", warnings)
			}
		})
	}
}

func TestGateway_DropsMessagesOfRevokedRobot(t *testing.T) {
	gone := newJoinedRobot("r1")
	gone.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	s := startWith(t, Config{Tokens: oneToken{}}, gone)
	for kind, topic := range map[wire.Kind]string{
		wire.KindRegister: wire.RobotTopic("r1", wire.KindRegister), wire.KindHeartbeat: wire.RobotTopic("r1", wire.KindHeartbeat),
		wire.KindPresence: wire.RobotTopic("r1", wire.KindPresence), wire.KindStatus: wire.TaskTopic("r1", "uid", wire.KindStatus),
		wire.KindLogs: wire.TaskTopic("r1", "uid", wire.KindLogs),
	} {
		s.receiveMessage(topic, `{"robotId":"r1","taskUid":"uid","state":"running"}`)
		if s.countDropped(kind, dropRevoked) != 1 {
			t.Errorf("its %s was accepted", kind)
		}
	}
}

// A broker that does not know of a revocation still delivers all that the server publishes.
func TestGateway_SendsNothingToRevokedRobot(t *testing.T) {
	for _, protocol := range []string{robotv1.ProtocolV2, robotv1.ProtocolV1} {
		t.Run(protocol, func(t *testing.T) {
			r1 := newJoinedRobot("r1")
			r1.Status.Identity = nil // a legacy agent has no identity and can be revoked, too
			r1.Status.Phase, r1.Status.Agent = "Online", &robotv1.AgentInfo{Protocol: protocol}
			s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true, AllowAnonymous: true}, r1, newBoundTask("first", "r1"))
			dispatch, state := wire.RobotTopic("r1", wire.KindDispatch), wire.RobotTopic("r1", wire.KindState)
			listener := s.newListener(dispatch, state)
			names := func(task string) bool {
				list, _ := listener.lastPayload(state)
				return bytes.Contains(list, []byte(s.task(task).UID))
			}
			eventually(t, "the task is dispatched", func() bool {
				_, n := listener.lastPayload(dispatch)
				return n > 0 && (names("first") || protocol == robotv1.ProtocolV1)
			})

			s.revoke("r1", true)
			eventually(t, "its list is empty", func() bool { return !names("first") })
			_, had := listener.lastPayload(dispatch)
			s.createTask(newBoundTask("second", "r1"))
			s.createTask(newBoundTask("other", "r2"))
			eventually(t, "the server has seen the tasks", func() bool {
				return s.gateway.objects.task(s.task("second").UID) != nil && s.gateway.objects.task(s.task("other").UID) != nil
			})
			s.gateway.downlink.resendAll()
			s.gateway.mqtt.onSubscribed(s.gateway.mqtt.currentConnection(), false) // as after a connect
			for s.gateway.downlink.sendNext() {
			}
			s.receiveMessage(wire.RobotTopic("r1", wire.KindRegister), `{"robotId":"r1"}`)
			s.awaitPublished(listener, "r1")
			if _, n := listener.lastPayload(dispatch); n != had {
				t.Errorf("%d dispatches after its revocation", n-had)
			}
			if names("second") {
				t.Error("its list still names a task")
			}

			s.revoke("r1", false)
			eventually(t, "waiting tasks are dispatched after it is approved again", func() bool {
				last, _ := listener.lastPayload(dispatch)
				return bytes.Contains(last, []byte(s.task("second").UID)) || bytes.Contains(last, []byte(s.task("first").UID))
			})
		})
	}
}

// A Task that is being deleted does not wait for a revoked robot.
func TestGateway_ReleasesTaskOfRevokedRobot(t *testing.T) {
	r1 := newJoinedRobot("r1")
	r1.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	r1.Status.Phase, r1.Status.Agent = "Online", &robotv1.AgentInfo{Protocol: robotv1.ProtocolV1}
	held := newBoundTask("held", "r1")
	held.Finalizers = []string{robotv1.FinalizerRobotNotified}
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true}, r1, held)
	if err := s.api.Delete(t.Context(), s.task("held")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task is gone", func() bool { return s.task("held") == nil })
}

// A client that registers with a wrong token gets no tasks before the token is checked.
func TestGateway_ChecksTokenBeforeSendingTasks(t *testing.T) {
	r1 := newJoinedRobot("r1")
	r1.Status.Identity, r1.Status.Phase, r1.Status.Agent = nil, "Online", &robotv1.AgentInfo{Protocol: robotv1.ProtocolV1}
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true}, r1, newBoundTask("first", "r1"))
	dispatch, state := wire.RobotTopic("r1", wire.KindDispatch), wire.RobotTopic("r1", wire.KindState)
	listener := s.newListener(dispatch, state)
	eventually(t, "the task is dispatched", func() bool {
		_, n := listener.lastPayload(dispatch)
		_, m := listener.lastPayload(state)
		return n > 0 && m > 0
	})
	s.gateway.downlink.mu.Lock()
	for _, i := range s.gateway.downlink.items {
		i.turns, i.due = 10, s.gateway.now().Add(time.Hour) // nothing is due by itself
	}
	s.gateway.downlink.mu.Unlock()
	s.awaitPublished(listener, "r1")
	_, dispatched := listener.lastPayload(dispatch)
	_, listed := listener.lastPayload(state)

	s.receiveMessage(wire.TopicRegister, `{"robotId":"r1","token":"bad"}`)
	eventually(t, "the token is refused", func() bool { return s.countDropped(wire.KindRegister, dropInvalidToken) == 1 })
	s.awaitPublished(listener, "r1")
	if _, n := listener.lastPayload(dispatch); n != dispatched {
		t.Errorf("%d dispatches in spite of an invalid token", n-dispatched)
	}
	if _, n := listener.lastPayload(state); n != listed {
		t.Errorf("%d lists in spite of an invalid token", n-listed)
	}
	s.receiveMessage(wire.TopicRegister, `{"robotId":"r1","token":"good"}`)
	eventually(t, "with a valid token everything is sent again", func() bool {
		_, n := listener.lastPayload(dispatch)
		_, m := listener.lastPayload(state)
		return n > dispatched && m > listed
	})
}

// revoke changes the revocation as an operator would, and waits until the server has observed it.
func (s *system) revoke(robot string, is bool) {
	s.t.Helper()
	eventually(s.t, "the write of the operator succeeds", func() bool {
		r := s.robot(robot)
		r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: is}
		return s.api.Update(s.t.Context(), r) == nil
	})
	eventually(s.t, "the server has observed the revocation", func() bool { return s.gateway.objects.isRevoked(robot) == is })
}

// awaitPublished waits until the listener has received all that the server has sent to a robot so
// far.
func (s *system) awaitPublished(listener *listener, robot string) {
	s.t.Helper()
	const topic = "fence"
	if _, err := listener.client.Subscribe(s.t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: topic, QoS: wire.QoS}}}); err != nil {
		s.t.Fatal(err)
	}
	_, had := listener.lastPayload(topic)
	if !s.gateway.mqtt.enqueueMessage(robot, message{topic: topic, connection: s.gateway.mqtt.currentConnection()}) {
		s.t.Fatal("the queue is full")
	}
	eventually(s.t, "the listener has received the marker", func() bool { _, n := listener.lastPayload(topic); return n > had })
}

func TestGateway_ChecksTokenOfLegacyAgent(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true})
	s.receiveMessage(wire.TopicRegister, `{"robotId":"r1","token":"bad"}`)
	eventually(t, "an invalid token is refused", func() bool { return s.countDropped(wire.KindRegister, dropInvalidToken) == 1 })
	s.receiveMessage(wire.TopicRegister, `{"robotId":"r2","token":"good"}`)
	r2 := &robotv1.Robot{}
	eventually(t, "a robot with a valid token is created", func() bool {
		return s.api.Get(t.Context(), client.ObjectKey{Namespace: "hall", Name: "r2"}, r2) == nil && r2.Status.Agent != nil
	})
	if r2.Spec.Labels["site"] != "a" || r2.Status.Agent.Protocol != robotv1.ProtocolV1 {
		t.Errorf("%+v", r2)
	}
	legacy := func(c metav1.Condition) bool {
		return c.Type == robotv1.ConditionAuthenticated && c.Status == metav1.ConditionFalse && c.Reason == robotv1.ReasonLegacyAgent
	}
	if !slices.ContainsFunc(r2.Status.Conditions, legacy) {
		t.Errorf("the condition is missing: %+v", r2.Status.Conditions)
	}
	s.receiveMessage(wire.TopicRegister, `{"robotId":"r2","token":"bad"}`)
	eventually(t, "the token of a known robot is checked again", func() bool { return s.countDropped(wire.KindRegister, dropInvalidToken) == 2 })
	var all robotv1.RobotList
	if err := s.api.List(t.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("%d robots, %v", len(all.Items), err)
	}
}

// A recreated robot has a new rate limit. Messages of the earlier robot of that id do not count.
func TestGateway_ForgetsRateLimitOfDeletedRobot(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, newJoinedRobot("r1"))
	now := s.gateway.now()
	for s.gateway.limits.messages.Allow("r1", now) {
	}
	if err := s.api.Delete(t.Context(), s.robot("r1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its rate limit is reset", func() bool { return s.gateway.limits.messages.Allow("r1", now) })
}

// All writers of Tasks handle a failed write in the same way.
func TestGateway_HandlesWriteErrors(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, newBoundTask("first", "r1"))
	kind := schema.GroupResource{Resource: "tasks"}
	task, broken := s.task("first"), errors.New("broken")
	for _, row := range []struct {
		err, want error
	}{
		{apierrors.NewNotFound(kind, "first"), nil},
		{apierrors.NewConflict(kind, "first", broken), errStale},
		{broken, broken},
	} {
		if err := s.gateway.handleWriteError(t.Context(), task, row.err, "let it go"); !errors.Is(err, row.want) {
			t.Errorf("after %v: error %v", row.err, err)
		}
	}
}
