package broker

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// dialTLS connects with these certificates, or without any.
func dialTLS(t *testing.T, b *Broker, ca *testca.Authority, certificates ...tls.Certificate) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.TLSURL(), "mqtts://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return tls.Client(conn, &tls.Config{RootCAs: ca.CertPool(), ServerName: "127.0.0.1", Certificates: certificates})
}

// tryConnect reports whether the broker answers CONNECT.
func tryConnect(t *testing.T, id string, conn net.Conn) (*peer, bool) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: id, KeepAlive: 60, Properties: &packets.Properties{}}
	if _, err := c.WriteTo(conn); err != nil {
		return nil, false
	}
	pk, err := packets.ReadPacket(conn)
	if err != nil {
		return nil, false
	}
	ack, ok := pk.Content.(*packets.Connack)
	return &peer{t: t, conn: conn}, ok && ack.ReasonCode == packets.ConnackSuccess
}

// Clients without a certificate, with or without CONNECT, take no slots from clients with one.
func TestBroker_UnauthenticatedClientsUseNoSlotsOfRobots(t *testing.T) {
	ca := testca.New(t)
	robot := ca.NewClientCertificate("r1", time.Hour)
	const room = 3
	b := startGuarded(t, func(c *Config) {
		c.Limits = Limits{Connections: room, Unauthenticated: room}
		c.TLSListen = "127.0.0.1:0"
		c.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.NewServerCertificate()}, ClientCAs: ca.CertPool(), ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}
	})
	for range room {
		dial(t, b) // sends nothing, without TLS
	}
	eventually(t, "the slots of unauthenticated clients are taken", func() bool { return b.Stats().Connections == room })
	if _, ok := tryConnect(t, "unknown", dialTLS(t, b, ca)); ok {
		t.Error("one more unauthenticated client got a slot")
	}
	for range room {
		if _, ok := tryConnect(t, "r1", dialTLS(t, b, ca, *robot)); !ok {
			t.Error("a robot got no slot")
		}
	}
	if n := b.Stats().Refused[RefusalKind{"connect", "address"}]; n != 1 {
		t.Errorf("%d refusals were counted", n)
	}
}

// Robots have limits of their own.
func TestConnSlots_LimitsRobots(t *testing.T) {
	for name, limits := range map[string]Limits{"in all": {Connections: 2}, "from one address": {PerAddress: 2}} {
		t.Run(name, func(t *testing.T) {
			p := newConnSlots(limits.withDefaults(), false, time.Now)
			for range 2 {
				pl := mustTakeSlot(t, p, "192.0.2.1:1")
				if err := p.moveSlot(pl, authenticated); err != nil {
					t.Fatal(err)
				}
				if err := p.moveSlot(pl, authenticated); err != nil {
					t.Errorf("moving to the same pool: %v", err)
				}
			}
			third := mustTakeSlot(t, p, "192.0.2.1:2")
			if err := p.moveSlot(third, authenticated); err == nil {
				t.Error("a third client got a slot")
			}
			if p.freeSlot(third); p.openCount() != 2 {
				t.Errorf("%d slots are taken", p.openCount())
			}
		})
	}
}

func mustTakeSlot(t *testing.T, p *connSlots, address string) *connSlot {
	t.Helper()
	pl, err := p.takeSlot(tcpAddr(address))
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return pl
}

func tcpAddr(address string) net.Addr {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		panic(err)
	}
	return tcp
}

func TestConnSlots_LimitsConnectRate(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := newConnSlots(Limits{ConnectRate: 1, ConnectBurst: 3}.withDefaults(), false, func() time.Time { return now })
	for range 3 {
		p.freeSlot(mustTakeSlot(t, p, "192.0.2.1:1"))
	}
	if _, err := p.takeSlot(tcpAddr("192.0.2.1:2")); !errors.Is(err, errTooFast) {
		t.Errorf("the fourth connection: %v", err)
	}
	other := mustTakeSlot(t, p, "192.0.2.2:1") // has not connected before
	now = now.Add(time.Second)
	mustTakeSlot(t, p, "192.0.2.1:3")

	if err := p.moveSlot(other, unauthenticated); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := p.moveSlot(mustTakeSlot(t, p, []string{"192.0.2.3:1", "192.0.2.4:1"}[i]), unauthenticated); err != nil {
			t.Fatal(err)
		}
	}
	fourth := mustTakeSlot(t, p, "192.0.2.5:1")
	if err := p.moveSlot(fourth, unauthenticated); !errors.Is(err, errTooFast) {
		t.Errorf("the fourth unauthenticated client, each from its own address: %v", err)
	}
	if err := p.moveSlot(fourth, authenticated); err != nil {
		t.Errorf("an authenticated robot: %v", err)
	}
}

// A client that only subscribes or pings is throttled, too.
func TestBroker_ThrottlesSubscriptionsAndPings(t *testing.T) {
	for name, send := range map[string]packets.Packet{
		"subscriptions":   &packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{qos1("k8s4r/robots/r1/ack"), qos1("k8s4r/robots/r1/response")}, Properties: &packets.Properties{}},
		"unsubscriptions": &packets.Unsubscribe{PacketID: 1, Topics: []string{"a", "b"}, Properties: &packets.Properties{}},
		"pings":           &packets.Pingreq{},
	} {
		t.Run(name, func(t *testing.T) {
			b := startGuarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 100, PacketBurst: 2} })
			robot, _ := newPeer(t, b, "r1")
			var all bytes.Buffer // in one write: with slow responses there would always be time for one more
			for range 5 {
				_, _ = send.WriteTo(&all) // a buffer accepts everything
			}
			if _, err := robot.conn.Write(all.Bytes()); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				robot.readPacket()
			}
			if b.Stats().Throttled == 0 {
				t.Error("it was not throttled")
			}
		})
	}
	b := startGuarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 1, PacketBurst: 1} })
	server, _ := newPeer(t, b, "k8s4r-server")
	for range 5 {
		server.expectNothing()
	}
}

// A client that acknowledges its messages is not throttled for that.
func TestBroker_DoesNotThrottleAcknowledgements(t *testing.T) {
	b := startGuarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 0.001, PacketBurst: 2} })
	robot, _ := newPeer(t, b, "r1")
	robot.subscribe(qos1(dispatchTopic))
	server, _ := newPeer(t, b, "k8s4r-server")
	for i := range 2 * maxInflightRobot {
		server.sendPublish(uint16(i+1), dispatchTopic, []byte("x"))
		server.readPacket()
		robot.sendAck(robot.readPublish())
	}
	_ = robot.conn.SetReadDeadline(time.Now())
	if _, err := io.ReadFull(robot.conn, make([]byte, 1)); err == nil {
		t.Error("another packet arrived")
	}
}

const dispatchTopic = "k8s4r/robots/r1/tasks/dispatch"
