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

// shows is a client that shows this certificate, or none.
func shows(t *testing.T, b *Broker, ca *testca.Authority, certificates ...tls.Certificate) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.TLSURL(), "mqtts://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return tls.Client(conn, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: certificates})
}

// entersAs tells whether there is an answer to CONNECT.
func entersAs(t *testing.T, id string, conn net.Conn) (*peer, bool) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(patience))
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

// Those who show no certificate, whether they say CONNECT or not, take no room from
// those who show one.
func TestStrangersTakeNoRoomFromRobots(t *testing.T) {
	ca := testca.New(t)
	robot := ca.Client("r1", time.Hour)
	const room = 3
	b := guarded(t, func(c *Config) {
		c.Limits = Limits{Connections: room, Strangers: room}
		c.TLSListen = "127.0.0.1:0"
		c.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.Server()}, ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12}
	})
	for range room {
		dial(t, b) // says nothing, without TLS
	}
	eventually(t, "there are strangers", func() bool { return b.Stats().Connections == room })
	if _, ok := entersAs(t, "stranger", shows(t, b, ca)); ok {
		t.Error("one stranger more finds room")
	}
	for range room {
		if _, ok := entersAs(t, "r1", shows(t, b, ca, *robot)); !ok {
			t.Error("a robot finds no room")
		}
	}
	if n := b.Stats().Refused[Attempt{"connect", "address"}]; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
}

// Robots have bounds of their own.
func TestRobotsAreCountedByThemselves(t *testing.T) {
	for name, limits := range map[string]Limits{"in all": {Connections: 2}, "from one address": {PerAddress: 2}} {
		t.Run(name, func(t *testing.T) {
			p := newPlaces(limits.withDefaults(), false, time.Now)
			for range 2 {
				pl := taken(t, p, "192.0.2.1:1")
				if err := p.move(pl, proven); err != nil {
					t.Fatal(err)
				}
				if err := p.move(pl, proven); err != nil {
					t.Errorf("one that is there already: %v", err)
				}
			}
			third := taken(t, p, "192.0.2.1:2")
			if err := p.move(third, proven); err == nil {
				t.Error("the third finds room")
			}
			if p.free(third); p.taken() != 2 {
				t.Errorf("%d places are taken", p.taken())
			}
		})
	}
}

func taken(t *testing.T, p *places, address string) *place {
	t.Helper()
	pl, err := p.take(at3(address))
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return pl
}

func at3(address string) net.Addr {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		panic(err)
	}
	return tcp
}

func TestConnectionsComeNoFasterThanTheyMay(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := newPlaces(Limits{ConnectRate: 1, ConnectBurst: 3}.withDefaults(), false, func() time.Time { return now })
	for range 3 {
		p.free(taken(t, p, "192.0.2.1:1"))
	}
	if _, err := p.take(at3("192.0.2.1:2")); !errors.Is(err, errTooFast) {
		t.Errorf("the fourth: %v", err)
	}
	other := taken(t, p, "192.0.2.2:1") // has done nothing
	now = now.Add(time.Second)
	taken(t, p, "192.0.2.1:3")

	if err := p.move(other, stranger); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := p.move(taken(t, p, []string{"192.0.2.3:1", "192.0.2.4:1"}[i]), stranger); err != nil {
			t.Fatal(err)
		}
	}
	fourth := taken(t, p, "192.0.2.5:1")
	if err := p.move(fourth, stranger); !errors.Is(err, errTooFast) {
		t.Errorf("the fourth stranger, each from an address of its own: %v", err)
	}
	if err := p.move(fourth, proven); err != nil {
		t.Errorf("a robot: %v", err)
	}
}

func TestOneNetworkOfIPv6IsOneAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8::1]:80": "2001:db8::/64", "[2001:db8::ffff:0:0:1]:80": "2001:db8::/64", "[2001:db8:0:1::1]:80": "2001:db8:0:1::/64",
	} {
		if got := siteOf(at3(address)); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

// Whatever makes work counts: a client that only subscribes, or pings, is slowed
// down as well.
func TestSubscriptionsAndPingsCount(t *testing.T) {
	for name, send := range map[string]packets.Packet{
		"subscriptions":   &packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{qos1("k8s4r/robots/r1/ack"), qos1("k8s4r/robots/r1/response")}, Properties: &packets.Properties{}},
		"unsubscriptions": &packets.Unsubscribe{PacketID: 1, Topics: []string{"a", "b"}, Properties: &packets.Properties{}},
		"pings":           &packets.Pingreq{},
	} {
		t.Run(name, func(t *testing.T) {
			b := guarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 100, PacketBurst: 2} })
			robot, _ := newPeer(t, b, "r1")
			var all bytes.Buffer // at once: between answers that are slow it may always be time for one more
			for range 5 {
				_, _ = send.WriteTo(&all) // a buffer takes everything
			}
			if _, err := robot.conn.Write(all.Bytes()); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				robot.read()
			}
			if b.Stats().Slowed == 0 {
				t.Error("it did not have to wait")
			}
		})
	}
	b := guarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 1, PacketBurst: 1} })
	server, _ := newPeer(t, b, "k8s4r-server")
	for range 5 {
		server.quiet()
	}
}

// A client that acknowledges what it was sent is not held up for that.
func TestAnAcknowledgementCountsNothing(t *testing.T) {
	b := guarded(t, func(c *Config) { c.Limits = Limits{PacketRate: 0.001, PacketBurst: 2} })
	robot, _ := newPeer(t, b, "r1")
	robot.subscribe(qos1(dispatchTopic))
	server, _ := newPeer(t, b, "k8s4r-server")
	for i := range 2 * maxSentRobot {
		server.say(uint16(i+1), dispatchTopic, []byte("x"))
		server.read()
		robot.ack(robot.publish())
	}
	_ = robot.conn.SetReadDeadline(time.Now())
	if _, err := io.ReadFull(robot.conn, make([]byte, 1)); err == nil {
		t.Error("something else comes")
	}
}

const dispatchTopic = "k8s4r/robots/r1/tasks/dispatch"
