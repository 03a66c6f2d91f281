package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestAdmission_GivesEachRobotOneTurn(t *testing.T) {
	began := time.Now()
	a := newAdmission(Limits{AdmitRate: 1, AdmitBurst: 2}.withDefaults())
	for i, step := range []struct {
		after time.Duration // since the first step
		robot string
		want  time.Duration
	}{
		{0, "r1", 0},
		{0, "r2", 0},
		{0, "r3", time.Second},
		{0, "r4", 2 * time.Second},
		{0, "r5", 3 * time.Second},
		{0, "r6", 4 * time.Second},
		{0, "r7", 5 * time.Second}, // must come back
		{0, "r8", 6 * time.Second},
		{time.Second, "r7", 4 * time.Second}, // it keeps its turn, and waits for it
		{2 * time.Second, "r8", 4 * time.Second},
		{2 * time.Second, "r9", 5 * time.Second},
		{30 * time.Second, "r9", -23 * time.Second}, // it is late
		{30 * time.Second, "r9", 0},                 // and has used its turn
	} {
		if got := a.takeTurn(step.robot, began.Add(step.after)).Round(time.Millisecond); got != step.want {
			t.Errorf("step %d: %s waits %s, want %s", i, step.robot, got, step.want)
		}
	}
	if len(a.turns) != 0 {
		t.Errorf("%d turns are left", len(a.turns))
	}
}

func TestAdmission_ForgetsRobotsThatDoNotComeBack(t *testing.T) {
	now := time.Now()
	a := newAdmission(Limits{AdmitRate: 0.1, AdmitBurst: 1}.withDefaults())
	for i := range 100 {
		a.takeTurn(fmt.Sprint("r", i), now)
		now = now.Add(20 * time.Second)
	}
	if n := len(a.turns); n > 0 {
		t.Errorf("%d turns although no robot had to wait", n)
	}
	for i := range 10 {
		a.takeTurn(fmt.Sprint("storm", i), now)
	}
	now = now.Add(time.Hour)
	a.takeTurn("r1", now)
	a.takeTurn("r2", now)
	if n := len(a.turns); n != 1 {
		t.Errorf("%d turns are kept, want that of the robot that waits", n)
	}
}

func TestBroker_AsksRobotsToComeBack(t *testing.T) {
	b := startGuarded(t, func(c *Config) { c.Limits = Limits{AdmitRate: 0.01, AdmitBurst: 1} })
	if _, ack := newPeer(t, b, "r1"); ack.ReasonCode != packets.ConnackSuccess {
		t.Fatalf("the first robot: reason code %#x", ack.ReasonCode)
	}
	_, ack := newPeer(t, b, "r2")
	value := ""
	for _, p := range ack.Properties.User {
		if p.Key == wire.PropertyRetryAfter {
			value = p.Value
		}
	}
	if after := wire.ParseRetryAfter(value); ack.ReasonCode != 0x89 || after < 99*time.Second || after > 100*time.Second {
		t.Errorf("the second robot: reason code %#x, retry after %q, want 0x89 and 100", ack.ReasonCode, value)
	}
	for _, id := range []string{"k8s4r-server", LegacyPrefix + "r3"} {
		if _, ack := newPeer(t, b, id); ack.ReasonCode != packets.ConnackSuccess {
			t.Errorf("%s: reason code %#x", id, ack.ReasonCode)
		}
	}
	if n := b.Stats().Postponed; n != 1 {
		t.Errorf("%d connections were postponed", n)
	}
}

// A robot that is accepted at its turn, on the same connection.
func TestBroker_AdmitsRobotsInTurn(t *testing.T) {
	b := startGuarded(t, func(c *Config) { c.Limits = Limits{AdmitRate: 20, AdmitBurst: 1} })
	began := time.Now()
	for i := range 5 {
		if _, ack := newPeer(t, b, fmt.Sprint("r", i)); ack.ReasonCode != packets.ConnackSuccess {
			t.Fatalf("robot %d: reason code %#x", i, ack.ReasonCode)
		}
	}
	if took := time.Since(began); took < 4*time.Second/20 {
		t.Errorf("five robots connected in %s at 20 per second", took)
	}
}

// Clients without a certificate take no turns.
func TestBroker_UnauthenticatedClientsDelayNoRobot(t *testing.T) {
	b := startGuarded(t, func(c *Config) { c.Limits = Limits{AdmitRate: 0.01, AdmitBurst: 1} })
	for range 20 {
		if _, ack := newPeer(t, b, "unknown"); ack.ReasonCode != packets.ConnackNotAuthorized {
			t.Fatalf("reason code %#x", ack.ReasonCode)
		}
	}
	if _, ack := newPeer(t, b, "r1"); ack.ReasonCode != packets.ConnackSuccess {
		t.Errorf("the robot: reason code %#x", ack.ReasonCode)
	}
}
