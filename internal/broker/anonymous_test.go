package broker

import (
	"sync/atomic"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/wire"
)

// letsAnybodyIn has r1 prove itself once it has joined.
type letsAnybodyIn struct {
	byName
	joined *atomic.Bool
}

func (l letsAnybodyIn) Identify(p Peer) (Identity, error) {
	if p.ClientID == "anybody" {
		return Identity{Name: "anybody", Role: RoleAnonymous, Proven: func(id string) bool { return id == "r1" && l.joined.Load() }}, nil
	}
	return l.byName.Identify(p)
}

// ofRobot are all topics between a robot and the server.
func ofRobot(id string) []string {
	topics := wire.RobotSubscriptions(id)
	for _, k := range []wire.Kind{wire.KindRegister, wire.KindHeartbeat, wire.KindPresence} {
		topics = append(topics, wire.RobotTopic(id, k))
	}
	return append(topics, wire.TaskTopic(id, "uid", wire.KindStatus), wire.TaskTopic(id, "uid", wire.KindLogs), "k8s4r/robots/"+id+"/anything", "k8s4r/robots/"+id+"/")
}

func TestNobodyButItselfSpeaksForARobotThatProvesItself(t *testing.T) {
	var joined atomic.Bool
	b := guarded(t, func(c *Config) { c.Authority = letsAnybodyIn{joined: &joined} })
	anybody, _ := newPeer(t, b, "anybody")
	id := uint16(0)
	answer := func(topic string, retain bool) byte {
		id++
		anybody.send(&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: []byte("run this"), Retain: retain, Properties: &packets.Properties{}})
		return anybody.read().Content.(*packets.Puback).ReasonCode
	}
	for _, topic := range append(ofRobot("r1"), ofRobot("r2")...) {
		if code := answer(topic, true); code >= 0x80 {
			t.Errorf("%s is refused with %#x though nobody proves anything there", topic, code)
		}
	}
	had := b.Stats().Retained
	server, _ := newPeer(t, b, "k8s4r-server")
	server.send(&packets.Publish{Topic: wire.RobotTopic("r1", wire.KindState), QoS: 1, PacketID: 1, Payload: []byte("{}"), Retain: true, Properties: &packets.Properties{}})
	server.read()

	joined.Store(true)
	b.Disconnect("r1") // as the registry does when the robot's key is accepted
	if got, want := b.Stats().Retained, had-len(ofRobot("r1"))+1; got != want {
		t.Errorf("%d messages are retained, want %d: those to r2, and the server's to r1", got, want)
	}
	for i, topic := range ofRobot("r1") {
		for _, retain := range []bool{false, true} {
			if code := answer(topic, retain); code != packets.PubackNotAuthorized {
				t.Errorf("%s, retained %v, is answered with %#x", topic, retain, code)
			}
		}
		if _, ack := newPeer(t, b, "anybody", leaves(topic)); ack.ReasonCode != packets.ConnackNotAuthorized {
			t.Errorf("a will on %s is answered with %#x", topic, ack.ReasonCode)
		}
		if n := b.Stats().Refused[Attempt{"publish", "topic"}]; n != uint64(2*(i+1)) {
			t.Errorf("%d refusals are counted", n)
		}
	}
	if code := answer(wire.RobotTopic("r2", wire.KindHeartbeat), false); code >= 0x80 {
		t.Errorf("r2 proves nothing, and is refused with %#x", code)
	}
}

// A will is asked about when it is published, too: the robot may have joined
// meanwhile.
func TestNoWillOfBeforeSpeaksForARobotThatHasJoined(t *testing.T) {
	var joined atomic.Bool
	b := guarded(t, func(c *Config) { c.Authority = letsAnybodyIn{joined: &joined} })
	robot, _ := newPeer(t, b, "r1")
	robot.subscribe(qos1(wire.RobotTopic("r1", wire.KindDispatch)))
	anybody, ack := newPeer(t, b, "anybody", leaves(wire.RobotTopic("r1", wire.KindDispatch)))
	if ack.ReasonCode != packets.ConnackSuccess {
		t.Fatalf("answered with %#x", ack.ReasonCode)
	}
	joined.Store(true)
	_ = anybody.conn.Close()
	eventually(t, "it is gone", func() bool { return b.Stats().Connections == 1 })
	robot.quiet()
}

// leaves is a last will.
func leaves(topic string) func(*packets.Connect) {
	return func(c *packets.Connect) {
		c.WillFlag, c.WillTopic, c.WillMessage, c.WillQOS, c.WillProperties = true, topic, []byte("run this"), 1, &packets.Properties{}
	}
}
