package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/jointoken"
	"k8s4r.io/k8s4r/internal/wire"
)

// oneToken lets in everybody who has it.
type oneToken struct{}

func (oneToken) Redeem(_ context.Context, text, _, _ string) (jointoken.Token, error) {
	if text == "good" {
		return jointoken.Token{Namespace: "hall", Labels: map[string]string{"site": "a"}}, nil
	}
	return jointoken.Token{}, &jointoken.RefusedError{Why: errors.New("the token is bad")}
}

func (o oneToken) Knows(ctx context.Context, text, robot, key string) error {
	_, err := o.Redeem(ctx, text, robot, key)
	return err
}

// joined is a robot that proves itself.
func joined(id string) *robotv1.Robot {
	return &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id}, Spec: robotv1.RobotSpec{RobotID: id},
		Status: robotv1.RobotStatus{Identity: &robotv1.RobotIdentity{Accepted: &robotv1.AcceptedIdentity{Key: "sha256:k", By: "Token"}}},
	}
}

func (s *system) dropped(kind wire.Kind, reason string) float64 {
	s.t.Helper()
	var m dto.Metric
	if err := s.b.m.dropped.WithLabelValues(string(kind), reason).Write(&m); err != nil {
		s.t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func (s *system) says(topic, payload string) { s.b.receive(topic, []byte(payload)) }

func TestThoseWhoProveNothingAreNotHeard(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, joined("r1"))
	s.says(wire.RobotTopic("r2", wire.KindRegister), `{"robotId":"r2"}`)
	s.says(wire.TopicRegister, `{"robotId":"r3","token":"good"}`)
	s.says(wire.TopicHeartbeat, `{"robotId":"r1"}`)
	if s.dropped(wire.KindRegister, "malformed") != 2 || s.dropped(wire.KindHeartbeat, "malformed") != 1 {
		t.Error("not all of them are dropped")
	}
	s.says(wire.RobotTopic("r1", wire.KindRegister), `{"robotId":"r1"}`)
	eventually(t, "one that proves itself is heard", func() bool { return s.condition("r1", robotv1.ConditionAuthenticated) != "" })
	var all robotv1.RobotList
	if err := s.api.List(t.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("%d robots, %v", len(all.Items), err)
	}
}

func TestNobodySpeaksForARobotThatProvesItself(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true}, joined("r1"))
	s.says(wire.TopicRegister, `{"robotId":"r1","token":"good"}`)
	s.says(wire.TopicHeartbeat, `{"robotId":"r1","token":"good"}`)
	s.says(wire.RobotTopic("r1", wire.KindHeartbeat), `{"robotId":"r2"}`)
	s.says(wire.TaskTopic("r1", "uid", wire.KindStatus), `{"taskUid":"uid","robotName":"r2","state":"running"}`)
	for kind, want := range map[wire.Kind]float64{wire.KindRegister: 1, wire.KindHeartbeat: 2, wire.KindStatus: 1} {
		if got := s.dropped(kind, "pretence"); got != want {
			t.Errorf("%s: %v are counted, want %v", kind, got, want)
		}
	}
	if w := s.warned(); len(w) != 1 || !strings.Contains(w[0], "this robot, which proves itself") {
		t.Errorf("people are told %q", w)
	}
	if r := s.robot("r1"); r.Status.LastHeartbeatTime != nil {
		t.Error("somebody else's heartbeat is written down")
	}
}

func TestARevokedRobotIsNotHeard(t *testing.T) {
	gone := joined("r1")
	gone.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
	s := startWith(t, Config{Tokens: oneToken{}}, gone)
	for kind, topic := range map[wire.Kind]string{
		wire.KindRegister: wire.RobotTopic("r1", wire.KindRegister), wire.KindHeartbeat: wire.RobotTopic("r1", wire.KindHeartbeat),
		wire.KindPresence: wire.RobotTopic("r1", wire.KindPresence), wire.KindStatus: wire.TaskTopic("r1", "uid", wire.KindStatus),
		wire.KindLogs: wire.TaskTopic("r1", "uid", wire.KindLogs),
	} {
		s.says(topic, `{"robotId":"r1","taskUid":"uid","state":"running"}`)
		if s.dropped(kind, "revoked") != 1 {
			t.Errorf("its %s is heard", kind)
		}
	}
}

func TestTheTokenOfADocumentAgentIsLookedAt(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}, AllowLegacy: true})
	s.says(wire.TopicRegister, `{"robotId":"r1","token":"bad"}`)
	eventually(t, "a bad token is refused", func() bool { return s.dropped(wire.KindRegister, "token") == 1 })
	s.says(wire.TopicRegister, `{"robotId":"r2","token":"good"}`)
	r2 := &robotv1.Robot{}
	eventually(t, "a good one lets its robot in", func() bool {
		return s.api.Get(t.Context(), client.ObjectKey{Namespace: "hall", Name: "r2"}, r2) == nil && r2.Status.Agent != nil
	})
	if r2.Spec.Labels["site"] != "a" || r2.Status.Agent.Protocol != robotv1.ProtocolDocument {
		t.Errorf("%+v", r2)
	}
	legacy := func(c metav1.Condition) bool {
		return c.Type == robotv1.ConditionAuthenticated && c.Status == metav1.ConditionFalse && c.Reason == robotv1.ReasonLegacy
	}
	if !slices.ContainsFunc(r2.Status.Conditions, legacy) {
		t.Errorf("nobody is told what it costs: %+v", r2.Status.Conditions)
	}
	s.says(wire.TopicRegister, `{"robotId":"r2","token":"bad"}`)
	eventually(t, "a known robot shows its token again", func() bool { return s.dropped(wire.KindRegister, "token") == 2 })
	var all robotv1.RobotList
	if err := s.api.List(t.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("%d robots, %v", len(all.Items), err)
	}
}
