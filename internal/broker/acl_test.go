package broker

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// anonymousAuthenticator accepts anonymous clients; r1 is authenticated once it has joined.
type anonymousAuthenticator struct {
	clientIDAuthenticator
	joined *atomic.Bool
}

func (l anonymousAuthenticator) Authenticate(p Peer) (Identity, error) {
	if p.ClientID == "anybody" {
		return Identity{Name: "anybody", Role: acl.Anonymous, IsAuthenticated: func(id string) bool { return id == "r1" && l.joined.Load() }}, nil
	}
	return l.clientIDAuthenticator.Authenticate(p)
}

// topicsOfRobot returns all topics between a robot and the server.
func topicsOfRobot(id string) []string {
	topics := wire.RobotSubscriptions(id)
	for _, k := range []wire.Kind{wire.KindRegister, wire.KindHeartbeat, wire.KindPresence} {
		topics = append(topics, wire.RobotTopic(id, k))
	}
	return append(topics, wire.TaskTopic(id, "uid", wire.KindStatus), wire.TaskTopic(id, "uid", wire.KindLogs), "k8s4r/robots/"+id+"/anything", "k8s4r/robots/"+id+"/")
}

func TestBroker_RefusesAnonymousImpersonation(t *testing.T) {
	var joined atomic.Bool
	b := startGuarded(t, func(c *Config) { c.Authenticator = anonymousAuthenticator{joined: &joined} })
	anybody, _ := newPeer(t, b, "anybody")
	id := uint16(0)
	answer := func(topic string, retain bool) byte {
		id++
		anybody.sendPacket(&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: []byte("run this"), Retain: retain, Properties: &packets.Properties{}})
		return anybody.readPacket().Content.(*packets.Puback).ReasonCode
	}
	for _, topic := range append(topicsOfRobot("r1"), topicsOfRobot("r2")...) {
		if code := answer(topic, true); code >= 0x80 {
			t.Errorf("%s: refused with %#x although the robot is not authenticated", topic, code)
		}
	}
	had := b.Stats().Retained
	server, _ := newPeer(t, b, "k8s4r-server")
	server.sendPacket(&packets.Publish{Topic: wire.RobotTopic("r1", wire.KindState), QoS: 1, PacketID: 1, Payload: []byte("{}"), Retain: true, Properties: &packets.Properties{}})
	server.readPacket()

	joined.Store(true)
	b.Disconnect("r1") // as the registry does when the robot's key is accepted
	if got, want := b.Stats().Retained, had-len(topicsOfRobot("r1"))+1; got != want {
		t.Errorf("%d messages are retained, want %d: those to r2 and those of the server to r1", got, want)
	}
	for i, topic := range topicsOfRobot("r1") {
		for _, retain := range []bool{false, true} {
			if code := answer(topic, retain); code != packets.PubackNotAuthorized {
				t.Errorf("%s, retained %v: reason code %#x", topic, retain, code)
			}
		}
		if _, ack := newPeer(t, b, "anybody", withWill(topic)); ack.ReasonCode != packets.ConnackNotAuthorized {
			t.Errorf("a will on %s: reason code %#x", topic, ack.ReasonCode)
		}
		if n := b.Stats().Refused[RefusalKind{"publish", "topic"}]; n != uint64(2*(i+1)) {
			t.Errorf("%d refusals were counted", n)
		}
	}
	if code := answer(wire.RobotTopic("r2", wire.KindHeartbeat), false); code >= 0x80 {
		t.Errorf("r2 is not authenticated, but refused with %#x", code)
	}
}

// The permission of a will is checked again when it is published: the robot may have joined since.
func TestBroker_RefusesWillForRobotThatHasJoinedSince(t *testing.T) {
	var joined atomic.Bool
	b := startGuarded(t, func(c *Config) { c.Authenticator = anonymousAuthenticator{joined: &joined} })
	robot, _ := newPeer(t, b, "r1")
	robot.subscribe(qos1(wire.RobotTopic("r1", wire.KindDispatch)))
	anybody, ack := newPeer(t, b, "anybody", withWill(wire.RobotTopic("r1", wire.KindDispatch)))
	if ack.ReasonCode != packets.ConnackSuccess {
		t.Fatalf("reason code %#x", ack.ReasonCode)
	}
	joined.Store(true)
	_ = anybody.conn.Close()
	eventually(t, "the connection is closed", func() bool { return b.Stats().Connections == 1 })
	robot.expectNothing()
}

// withWill sets a last will.
func withWill(topic string) func(*packets.Connect) {
	return func(c *packets.Connect) {
		c.WillFlag, c.WillTopic, c.WillMessage, c.WillQOS, c.WillProperties = true, topic, []byte("run this"), 1, &packets.Properties{}
	}
}

// The broker allows exactly what the table of permissions allows.
func TestBroker_EnforcesTheTableOfPermissions(t *testing.T) {
	b := startGuarded(t)
	for name, c := range map[string]acl.Client{
		"r1": {Role: acl.Robot, RobotID: "r1"}, LegacyPrefix + "r2": {Role: acl.LegacyAgent, RobotID: "r2"}, "k8s4r-server": {Role: acl.Server},
	} {
		p, _ := newPeer(t, b, name)
		id := uint16(0)
		for _, row := range acl.Table() {
			for _, robot := range []string{"r1", "r2"} {
				topic := strings.NewReplacer("{robot}", robot, "{task}", "uid", "+", "x").Replace(row.Topic)
				for _, retain := range []bool{false, true} {
					id++
					p.sendPacket(&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: []byte("x"), Retain: retain, Properties: &packets.Properties{}})
					passed := p.readPacket().Content.(*packets.Puback).ReasonCode < 0x80
					if want := c.CanPublish(topic, retain); passed != want {
						t.Errorf("%s publishes on %s, retained %v: %v, want %v", name, topic, retain, passed, want)
					}
				}
			}
		}
	}
}
