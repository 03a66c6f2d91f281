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

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// clientIDAuthenticator identifies clients by their client IDs.
type clientIDAuthenticator struct{}

func (clientIDAuthenticator) Authenticate(p Peer) (Identity, error) {
	switch {
	case p.ClientID == "k8s4r-server":
		return Identity{Name: p.ClientID, Role: acl.Server}, nil
	case strings.HasPrefix(p.ClientID, LegacyPrefix):
		return Identity{Name: strings.TrimPrefix(p.ClientID, LegacyPrefix), Role: acl.LegacyAgent}, nil
	case p.ClientID == "unknown":
		return Identity{}, errors.New("unknown client")
	}
	return Identity{Name: p.ClientID, Role: acl.Robot}, nil
}

func startGuarded(t *testing.T, change ...func(*Config)) *Broker {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:0", Authenticator: clientIDAuthenticator{}}
	for _, f := range change {
		f(&cfg)
	}
	return startConfig(t, cfg)
}

// newServer connects a client that subscribes to all registrations.
func newServer(t *testing.T, b *Broker) *peer {
	t.Helper()
	server, _ := newPeer(t, b, "k8s4r-server")
	if got := server.subscribe(qos1(wire.RobotTopic("+", wire.KindRegister))); got[0] != 1 {
		t.Fatalf("subscription: reason code %#x", got)
	}
	return server
}

func (p *peer) sendPublish(id uint16, topic string, payload []byte) {
	p.t.Helper()
	p.sendPacket(&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: payload, Properties: &packets.Properties{}})
}

var registerTopic = wire.RobotTopic("r1", wire.KindRegister)

// A robot gets at most 64 unacknowledged messages, whatever its receive maximum is.
func TestBroker_LimitsInflightMessagesOfRobot(t *testing.T) {
	b := startGuarded(t)
	robot, _ := newPeer(t, b, "r1", withReceiveMaximum(1000))
	robot.subscribe(qos1(wire.RobotTopic("r1", wire.KindDispatch)))
	server := newServer(t, b)
	for i := range maxInflightRobot + 10 {
		server.sendPublish(uint16(i+1), wire.RobotTopic("r1", wire.KindDispatch), []byte("x"))
		server.readPacket()
	}
	var had *packets.Publish
	for range maxInflightRobot {
		had = robot.readPublish()
	}
	robot.expectNothing()
	robot.sendAck(had)
	robot.readPublish()
	robot.expectNothing()
}

// A robot that publishes too fast is read more slowly, and no message is lost.
func TestBroker_ThrottlesRobotAboveItsRate(t *testing.T) {
	b := startGuarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 100, PacketBurst: 10} })
	server := newServer(t, b)
	robot, _ := newPeer(t, b, "r1")
	const messages = 50
	go func() {
		for i := range messages {
			_, _ = (&packets.Publish{Topic: registerTopic, QoS: 1, PacketID: uint16(i + 1), Payload: fmt.Append(nil, i), Properties: &packets.Properties{}}).WriteTo(robot.conn)
		}
	}()
	for i := range messages {
		m := server.readPublish()
		if string(m.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, m.Payload)
		}
		server.sendAck(m)
	}
	if s := b.Stats(); s.Throttled == 0 || s.Dropped != 0 {
		t.Errorf("%d messages were throttled and %d were dropped", s.Throttled, s.Dropped)
	}
}

// A robot that publishes too many bytes is read more slowly, and no message is lost. It is reported
// once.
func TestBroker_ThrottlesBytesOfRobot(t *testing.T) {
	throttled := make(chan string, 100)
	b := startGuarded(t, func(c *Config) {
		c.Limits, c.OnThrottled = Limits{ByteRate: 1 << 20, ByteBurst: 64 << 10}, func(name string) { throttled <- name }
	})
	server := newServer(t, b)
	robot, _ := newPeer(t, b, "r1")
	const messages = 8
	go func() {
		payload := bytes.Repeat([]byte("x"), 32<<10)
		for i := range messages {
			_, _ = (&packets.Publish{Topic: registerTopic, QoS: 1, PacketID: uint16(i + 1), Payload: payload, Properties: &packets.Properties{}}).WriteTo(robot.conn)
		}
	}()
	for range messages {
		server.sendAck(server.readPublish())
	}
	if s := b.Stats(); s.Throttled == 0 || s.Dropped != 0 {
		t.Errorf("%d messages were throttled and %d were dropped", s.Throttled, s.Dropped)
	}
	if name := <-throttled; name != "r1" || len(throttled) > 0 {
		t.Errorf("reported %s and %d more", name, len(throttled))
	}
}

// A robot that connects again has used what it used before.
func TestClientLimiters_OutliveConnections(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := &clientLimiters{limits: Limits{PacketRate: 10, PacketBurst: 100, ByteRate: 1000, ByteBurst: 1000}.withDefaults(), now: func() time.Time { return now }}
	robot := Identity{Name: "r1", Role: acl.Robot}
	if wait := l.limiterOf(robot).reserve(now, 80, 1000); wait > 0 {
		t.Errorf("the first burst waits %s", wait)
	}
	if wait := l.limiterOf(robot).reserve(now, 0, 1000); wait != time.Second {
		t.Errorf("bytes on the next connection wait %s", wait)
	}
	if wait := l.limiterOf(robot).reserve(now, 1, 0); wait < 2*time.Second {
		t.Errorf("messages on the third connection wait %s: connections do not count", wait)
	}
	if wait := l.limiterOf(Identity{Name: "r2", Role: acl.Robot}).reserve(now, 100, 1000); wait > 0 {
		t.Errorf("another robot waits %s", wait)
	}
	if l.limiterOf(Identity{Role: acl.Server}) != nil {
		t.Error("the server is limited")
	}
}

// While the server does not read, the messages of robots are not read either. They are more than
// the broker stores, and none is lost.
func TestBroker_DelaysRobotsWhenServerIsBehind(t *testing.T) {
	const queue = 16 << 20
	b := startGuarded(t, func(c *Config) {
		c.Limits = Limits{PacketRate: 1e6, PacketBurst: 1e6, ByteRate: 1e12, ByteBurst: 1e9, QueuedBytes: queue}
	})
	server := newServer(t, b)
	robot, _ := newPeer(t, b, "r1")
	const messages = 2 * queue / wire.MaxPayload
	go func() {
		large := bytes.Repeat([]byte("x"), wire.MaxPayload-8)
		for i := range messages {
			payload := append(fmt.Appendf(nil, "%08d", i), large...)
			_, _ = (&packets.Publish{Topic: registerTopic, QoS: 1, PacketID: uint16(i + 1), Payload: payload, Properties: &packets.Properties{}}).WriteTo(robot.conn)
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, robot.conn) }()
	eventually(t, "the robot waits", func() bool { return b.hub.serverBacklog() != nil })
	for i := range messages {
		m := server.readPublish()
		if string(m.Payload[:8]) != fmt.Sprintf("%08d", i) {
			t.Fatalf("message %d is %s", i, m.Payload[:8])
		}
		server.sendAck(m)
	}
	if s := b.Stats(); s.Dropped != 0 {
		t.Errorf("%d messages were dropped", s.Dropped)
	}
}

func TestBroker_LimitsConnections(t *testing.T) {
	for name, limits := range map[string]Limits{"in all": {Unauthenticated: 2}, "from one address": {PerAddress: 2}} {
		t.Run(name, func(t *testing.T) {
			b := startGuarded(t, func(c *Config) { c.Limits = limits })
			first, _ := newPeer(t, b, "r1")
			newPeer(t, b, "r2")
			third := dial(t, b)
			_ = third.SetReadDeadline(time.Now().Add(waitTimeout))
			if _, err := third.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
				t.Errorf("the third connection was not closed: %v", err)
			}
			if n := b.Stats().Refused[RefusalKind{"connect", "address"}]; n != 1 {
				t.Errorf("%d refusals were counted", n)
			}
			first.sendPacket(&packets.Disconnect{Properties: &packets.Properties{}})
			eventually(t, "a slot is free", func() bool { return b.Stats().Connections == 1 })
			newPeer(t, b, "r3")
		})
	}
}

// MQTT 3.1.1 cannot refuse a message: it is acknowledged and dropped.
func TestBroker_EnforcesPermissionsOnMQTT3(t *testing.T) {
	b := startGuarded(t)
	server := newServer(t, b)
	robot := connect3(t, b, "r1")
	token := robot.Subscribe(wire.RobotTopic("r2", wire.KindDispatch), 1, nil)
	token.WaitTimeout(waitTimeout)
	if got := token.(*mqtt3.SubscribeToken).Result()[wire.RobotTopic("r2", wire.KindDispatch)]; got != 0x80 {
		t.Errorf("subscription: reason code %#x", got)
	}
	awaitToken(t, robot.Publish(wire.RobotTopic("r2", wire.KindRegister), 1, false, "I am r2"))
	awaitToken(t, robot.Publish(registerTopic, 1, true, "x"))
	server.expectNothing()
	want := map[RefusalKind]uint64{{"subscribe", "topic"}: 1, {"publish", "topic"}: 1, {"publish", "retained"}: 1}
	for a, n := range want {
		if got := b.Stats().Refused[a]; got != n {
			t.Errorf("%v was counted %d times, want %d", a, got, n)
		}
	}
	c := mqtt3.NewClient(mqtt3.NewClientOptions().AddBroker("tcp://" + listenAddress(t, b)).SetClientID("unknown").SetProtocolVersion(4).SetAutoReconnect(false))
	token = c.Connect()
	token.WaitTimeout(waitTimeout)
	if got := token.(*mqtt3.ConnectToken).ReturnCode(); got != 5 {
		t.Errorf("an unknown client got return code %d (%v)", got, token.Error())
	}
}

// The first refusal of a robot is reported, and the next ones only after a minute. Refusals of
// unauthenticated clients are not reported, because their number is unlimited.
func TestBroker_ReportsRefusalsOnceAMinute(t *testing.T) {
	reported := make(chan Refusal, 10)
	b := New(Config{Listen: "127.0.0.1:0", Authenticator: clientIDAuthenticator{}, OnRefused: func(r Refusal) { reported <- r }})
	var now atomic.Int64
	now.Store(1e9)
	b.now = func() time.Time { return time.Unix(now.Load(), 0) }
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b) })
	newPeer(t, b, "unknown")
	robot, _ := newPeer(t, b, "r1")
	try := func(topic string) {
		robot.sendPublish(1, topic, nil)
		if code := robot.readPacket().Content.(*packets.Puback).ReasonCode; code != packets.PubackNotAuthorized {
			t.Errorf("%s: reason code %#x", topic, code)
		}
	}
	try("first")
	try("second")
	if got, want := <-reported, (Refusal{"r1", "publish", "first"}); got != want {
		t.Errorf("reported %+v, want %+v", got, want)
	}
	now.Add(int64(reportInterval / time.Second))
	try("third")
	if got := <-reported; got.Topic != "third" {
		t.Errorf("next report %+v", got)
	}
}

// Some legacy agents clear their own task list when they start. That is refused and counted. It is
// not reported, because it is no impersonation.
func TestBroker_DoesNotReportLegacyAgentThatClearsItsTaskList(t *testing.T) {
	reported := make(chan Refusal, 10)
	b := startGuarded(t, func(c *Config) { c.OnRefused = func(r Refusal) { reported <- r } })
	agent, _ := newPeer(t, b, LegacyPrefix+"r1")
	clearList := func(robotID string) {
		agent.sendPacket(&packets.Publish{Topic: wire.RobotTopic(robotID, wire.KindState), QoS: 1, PacketID: 1, Retain: true, Properties: &packets.Properties{}})
		if code := agent.readPacket().Content.(*packets.Puback).ReasonCode; code != packets.PubackNotAuthorized {
			t.Errorf("the list of %s: reason code %#x", robotID, code)
		}
	}
	clearList("r1")
	clearList("r2") // the first of a minute that is reported
	if got, want := <-reported, (Refusal{"r1", "publish", wire.RobotTopic("r2", wire.KindState)}); got != want {
		t.Errorf("reported %+v, want %+v", got, want)
	}
	if n := b.Stats().Refused[RefusalKind{"publish", "topic"}]; n != 2 {
		t.Errorf("%d refusals were counted", n)
	}
}

func TestBroker_LimitsPacketSizeBeforeAuthentication(t *testing.T) {
	b := startGuarded(t)
	conn := dial(t, b)
	_, _ = conn.Write([]byte("\x10\x80\x80\x10")) // a CONNECT of 256 kB
	_ = conn.SetReadDeadline(time.Now().Add(connectTimeout / 2))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the broker did not close the connection: %v", err)
	}
}

// A client that is revoked between its authentication and the creation of its session is refused.
func TestBroker_AuthenticatesAgainAfterRevocation(t *testing.T) {
	revoked := errors.New("revoked")
	var itself atomic.Pointer[Broker]
	var requests atomic.Int32
	b := startGuarded(t, func(c *Config) {
		c.Authenticator = authorityFunc(func(p Peer) (Identity, error) {
			if requests.Add(1) > 1 {
				return Identity{}, revoked
			}
			itself.Load().Disconnect("r1")
			return Identity{Name: "r1", Role: acl.Robot}, nil
		})
	})
	itself.Store(b)
	if _, ack := newPeer(t, b, "r1"); ack.ReasonCode != packets.ConnackNotAuthorized {
		t.Errorf("reason code %#x", ack.ReasonCode)
	}
	if s := b.Stats(); s.Sessions != 0 {
		t.Error("a session was created")
	}
}

type authorityFunc func(Peer) (Identity, error)

func (f authorityFunc) Authenticate(p Peer) (Identity, error) { return f(p) }
