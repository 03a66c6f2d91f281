package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	mqtt3 "github.com/eclipse/paho.mqtt.golang"

	"k8s4r.io/k8s4r/internal/wire"
)

// byName takes everybody for who it says.
type byName struct{}

func (byName) Identify(p Peer) (Identity, error) {
	switch {
	case p.ClientID == "k8s4r-server":
		return Identity{Name: p.ClientID, Role: RoleServer}, nil
	case strings.HasPrefix(p.ClientID, LegacyPrefix):
		return Identity{Name: strings.TrimPrefix(p.ClientID, LegacyPrefix), Role: RoleLegacy}, nil
	case p.ClientID == "stranger":
		return Identity{}, errors.New("nobody knows it")
	}
	return Identity{Name: p.ClientID, Role: RoleRobot}, nil
}

func guarded(t *testing.T, change ...func(*Config)) *Broker {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:0", Authority: byName{}}
	for _, f := range change {
		f(&cfg)
	}
	b := New(cfg)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	return b
}

// newServer listens to all registrations.
func newServer(t *testing.T, b *Broker) *peer {
	t.Helper()
	server, _ := newPeer(t, b, "k8s4r-server")
	if got := server.subscribe(qos1(wire.RobotTopic("+", wire.KindRegister))); got[0] != 1 {
		t.Fatalf("subscription answered with %#x", got)
	}
	return server
}

func (p *peer) say(id uint16, topic string, payload []byte) {
	p.t.Helper()
	p.send(&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: payload, Properties: &packets.Properties{}})
}

var registerTopic = wire.RobotTopic("r1", wire.KindRegister)

// A robot is sent 64 messages at a time, whatever it says that it takes.
func TestARobotIsNotSentAllAtOnce(t *testing.T) {
	b := guarded(t)
	robot, _ := newPeer(t, b, "r1", window(1000))
	robot.subscribe(qos1(wire.RobotTopic("r1", wire.KindDispatch)))
	server := newServer(t, b)
	for i := range maxSentRobot + 10 {
		server.say(uint16(i+1), wire.RobotTopic("r1", wire.KindDispatch), []byte("x"))
		server.read()
	}
	var had *packets.Publish
	for range maxSentRobot {
		had = robot.publish()
	}
	robot.quiet()
	robot.ack(had)
	robot.publish()
	robot.quiet()
}

// A robot that says too much is read from more slowly, and loses nothing.
func TestARobotThatSaysTooMuchIsSlowedDown(t *testing.T) {
	b := guarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 100, PacketBurst: 10} })
	server := newServer(t, b)
	robot, _ := newPeer(t, b, "r1")
	const messages = 50
	go func() {
		for i := range messages {
			_, _ = (&packets.Publish{Topic: registerTopic, QoS: 1, PacketID: uint16(i + 1), Payload: fmt.Append(nil, i), Properties: &packets.Properties{}}).WriteTo(robot.conn)
		}
	}()
	for i := range messages {
		m := server.publish()
		if string(m.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, m.Payload)
		}
		server.ack(m)
	}
	if s := b.Stats(); s.Slowed == 0 || s.Dropped != 0 {
		t.Errorf("%d messages had to wait and %d were dropped", s.Slowed, s.Dropped)
	}
}

// What robots say while the server does not read waits with the robots; it is
// more than the broker keeps, and none of it is lost.
func TestRobotsWaitForAServerThatIsBehind(t *testing.T) {
	b := guarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 1e6, PacketBurst: 1e6} })
	server := newServer(t, b)
	robot, _ := newPeer(t, b, "r1")
	const messages = 2 * maxWaitingBytes / wire.MaxPayload
	go func() {
		large := bytes.Repeat([]byte("x"), wire.MaxPayload-8)
		for i := range messages {
			payload := append(fmt.Appendf(nil, "%08d", i), large...)
			_, _ = (&packets.Publish{Topic: registerTopic, QoS: 1, PacketID: uint16(i + 1), Payload: payload, Properties: &packets.Properties{}}).WriteTo(robot.conn)
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, robot.conn) }()
	eventually(t, "the robot waits", func() bool { return b.hub.pressure() != nil })
	for i := range messages {
		m := server.publish()
		if string(m.Payload[:8]) != fmt.Sprintf("%08d", i) {
			t.Fatalf("message %d is %s", i, m.Payload[:8])
		}
		server.ack(m)
	}
	if s := b.Stats(); s.Dropped != 0 {
		t.Errorf("%d messages are lost", s.Dropped)
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	for name, limits := range map[string]Limits{"in all": {Strangers: 2}, "from one address": {PerAddress: 2}} {
		t.Run(name, func(t *testing.T) {
			b := guarded(t, func(c *Config) { c.Limits = limits })
			first, _ := newPeer(t, b, "r1")
			newPeer(t, b, "r2")
			third := dial(t, b)
			_ = third.SetReadDeadline(time.Now().Add(patience))
			if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
				t.Errorf("the third is not hung up on: %v", err)
			}
			if n := b.Stats().Refused[Attempt{"connect", "address"}]; n != 1 {
				t.Errorf("%d refusals are counted", n)
			}
			first.send(&packets.Disconnect{Properties: &packets.Properties{}})
			eventually(t, "there is a place again", func() bool { return b.Stats().Connections == 1 })
			newPeer(t, b, "r3")
		})
	}
}

// Version 3.1.1 has no word for a refusal of a message: it is acknowledged, and
// goes nowhere.
func TestARobotOfVersion3MayNoMore(t *testing.T) {
	b := guarded(t)
	server := newServer(t, b)
	robot := connect3(t, b, "r1")
	token := robot.Subscribe(wire.RobotTopic("r2", wire.KindDispatch), 1, nil)
	token.WaitTimeout(patience)
	if got := token.(*mqtt3.SubscribeToken).Result()[wire.RobotTopic("r2", wire.KindDispatch)]; got != 0x80 {
		t.Errorf("subscription answered with %#x", got)
	}
	await(t, robot.Publish(wire.RobotTopic("r2", wire.KindRegister), 1, false, "I am r2"))
	await(t, robot.Publish(registerTopic, 1, true, "for ever"))
	server.quiet()
	want := map[Attempt]uint64{{"subscribe", "topic"}: 1, {"publish", "topic"}: 1, {"publish", "retained"}: 1}
	for a, n := range want {
		if got := b.Stats().Refused[a]; got != n {
			t.Errorf("%v is counted %d times, want %d", a, got, n)
		}
	}
	c := mqtt3.NewClient(mqtt3.NewClientOptions().AddBroker("tcp://" + address(t, b)).SetClientID("stranger").SetProtocolVersion(4).SetAutoReconnect(false))
	token = c.Connect()
	token.WaitTimeout(patience)
	if got := token.(*mqtt3.ConnectToken).ReturnCode(); got != 5 {
		t.Errorf("a stranger is answered with %d (%v)", got, token.Error())
	}
}

// The first refusal of a robot is reported, and the next ones are not for a
// minute; a stranger's never is, for there are any number of them.
func TestARefusalIsReportedOnceAMinute(t *testing.T) {
	told := make(chan Refusal, 10)
	b := New(Config{Listen: "127.0.0.1:0", Authority: byName{}, Refused: func(r Refusal) { told <- r }})
	var now atomic.Int64
	now.Store(1e9)
	b.now = func() time.Time { return time.Unix(now.Load(), 0) }
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	newPeer(t, b, "stranger")
	robot, _ := newPeer(t, b, "r1")
	try := func(topic string) {
		robot.say(1, topic, nil)
		if code := robot.read().Content.(*packets.Puback).ReasonCode; code != packets.PubackNotAuthorized {
			t.Errorf("%s is answered with %#x", topic, code)
		}
	}
	try("first")
	try("second")
	if got, want := <-told, (Refusal{"r1", "publish", "first"}); got != want {
		t.Errorf("told %+v, want %+v", got, want)
	}
	now.Add(int64(sayAgain / time.Second))
	try("third")
	if got := <-told; got.Topic != "third" {
		t.Errorf("then %+v", got)
	}
}

func TestAStrangerMaySayLittle(t *testing.T) {
	b := guarded(t)
	conn := dial(t, b)
	_, _ = conn.Write([]byte("\x10\x80\x80\x10")) // a CONNECT of 256 kB
	_ = conn.SetReadDeadline(time.Now().Add(connectWithin / 2))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the broker waits for it: %v", err)
	}
}

// Somebody who is cut off between the question who it is and its session does
// not get in by that.
func TestWhoIsCutOffMeanwhileIsAskedForAnew(t *testing.T) {
	revoked := errors.New("revoked")
	var itself atomic.Pointer[Broker]
	var asked atomic.Int32
	b := guarded(t, func(c *Config) {
		c.Authority = authorityFunc(func(p Peer) (Identity, error) {
			if asked.Add(1) > 1 {
				return Identity{}, revoked
			}
			itself.Load().Disconnect("r1")
			return Identity{Name: "r1", Role: RoleRobot}, nil
		})
	})
	itself.Store(b)
	if _, ack := newPeer(t, b, "r1"); ack.ReasonCode != packets.ConnackNotAuthorized {
		t.Errorf("answered with %#x", ack.ReasonCode)
	}
	if s := b.Stats(); s.Sessions != 0 {
		t.Error("it has a session")
	}
}

type authorityFunc func(Peer) (Identity, error)

func (f authorityFunc) Identify(p Peer) (Identity, error) { return f(p) }
