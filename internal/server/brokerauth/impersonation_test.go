package brokerauth

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const waitTimeout = 30 * time.Second

// brokerBench is a broker with a registry that has r1 and r2.
type brokerBench struct {
	*bench
	*broker.Broker
	roots       *x509.CertPool
	certificate tls.Certificate // of r1
	events      chan string     // events, with the robot's name
}

func newBrokerBench(t *testing.T) *brokerBench {
	t.Helper()
	s := &brokerBench{bench: newBench(t, Config{AllowLegacy: true}), roots: x509.NewCertPool(), events: make(chan string, 16)}
	s.roots.AppendCertsFromPEM(s.auth.TrustPEM())
	s.Broker = broker.New(broker.Config{TLSListen: "127.0.0.1:0", TLS: s.auth.BrokerTLSConfig("127.0.0.1"), Authenticator: s.Registry, OnRefused: s.ReportRefusal})
	s.SetDependencies(nil, s.Disconnect, func(o client.Object, reason, message string) {
		s.events <- o.GetName() + " " + reason + " " + message
	})
	for _, id := range []string{"r1", "r2"} {
		key, _, err := keyfile.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.auth.SignRobot(id, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if s.updateRobot(robot("hall", id, identity.CertificateFingerprint(c))); id == "r1" {
			s.certificate = tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: crypto.PrivateKey(key), Leaf: c}
		}
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts the broker.
func (s *brokerBench) Start(ctx context.Context) error { return s.Broker.Start(ctx) }

// clientTLS returns the configuration of r1.
func (s *brokerBench) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "127.0.0.1", Certificates: []tls.Certificate{s.certificate}}
}

// connectAs sends CONNECT with the certificate of r1 and returns the reason code.
func (s *brokerBench) connectAs(change func(*packets.Connect)) (*tls.Conn, byte) {
	s.t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.TLSURL(), "mqtts://"), s.clientTLS())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "r1", KeepAlive: 60, Properties: &packets.Properties{}}
	change(c)
	return conn, s.request(conn, c).(*packets.Connack).ReasonCode
}

// request sends a packet and returns the response.
func (s *brokerBench) request(conn *tls.Conn, p packets.Packet) packets.Packet {
	s.t.Helper()
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := p.WriteTo(conn); err != nil {
		s.t.Fatal(err)
	}
	answer, err := packets.ReadPacket(conn)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.Content
}

// connectAsSelf returns a connection of r1 with its own client ID.
func (s *brokerBench) connectAsSelf() *tls.Conn {
	s.t.Helper()
	conn, code := s.connectAs(func(*packets.Connect) {})
	if code != packets.ConnackSuccess {
		s.t.Fatalf("r1 is refused with its own client ID: %#x", code)
	}
	return conn
}

// nextEvent waits for an event.
func (s *brokerBench) nextEvent() string {
	select {
	case events := <-s.events:
		return events
	case <-time.After(waitTimeout):
		return "no event"
	}
}

// Each way of impersonation that MQTT has is refused and counted, and becomes an event of the robot
// with the certificate.
func TestRegistry_ReportsImpersonation(t *testing.T) {
	type way struct {
		name   string
		counts broker.RefusalKind
		try    func(*brokerBench) byte
	}
	var ways []way
	for _, id := range []string{"r2", identity.ServerName, identity.AdminName, broker.LegacyPrefix + "r1", broker.LegacyPrefix + "r2", "other", ""} {
		ways = append(ways, way{fmt.Sprintf("connect as %q", id), broker.RefusalKind{Action: "connect", Reason: "client-id"}, func(s *brokerBench) byte {
			_, code := s.connectAs(func(c *packets.Connect) {
				c.ClientID, c.UsernameFlag, c.Username = id, true, id
			})
			return code
		}})
	}
	published := func(topic string, retain bool) func(*brokerBench) byte {
		return func(s *brokerBench) byte {
			return s.request(s.connectAsSelf(), &packets.Publish{Topic: topic, QoS: 1, PacketID: 1, Retain: retain, Properties: &packets.Properties{}}).(*packets.Puback).ReasonCode
		}
	}
	willed := func(topic string, retain bool) func(*brokerBench) byte {
		return func(s *brokerBench) byte {
			_, code := s.connectAs(func(c *packets.Connect) {
				c.WillFlag, c.WillTopic, c.WillMessage, c.WillQOS, c.WillRetain, c.WillProperties = true, topic, []byte("x"), 1, retain, &packets.Properties{}
			})
			return code
		}
	}
	subscribed := func(filter string) func(*brokerBench) byte {
		return func(s *brokerBench) byte {
			return s.request(s.connectAsSelf(), &packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{{Topic: filter, QoS: 1}}, Properties: &packets.Properties{}}).(*packets.Suback).Reasons[0]
		}
	}
	robotTopics := []string{
		wire.RobotTopic("r2", wire.KindRegister), wire.RobotTopic("r2", wire.KindHeartbeat), wire.RobotTopic("r2", wire.KindPresence),
		wire.TaskTopic("r2", "uid", wire.KindStatus), wire.TaskTopic("r2", "uid", wire.KindLogs), wire.TopicRegister, wire.TopicHeartbeat,
	}
	fromServer := append(wire.RobotSubscriptions("r1"), wire.RobotSubscriptions("r2")...)
	for _, topic := range append(robotTopics, fromServer...) {
		ways = append(ways,
			way{"publish on " + topic, broker.RefusalKind{Action: "publish", Reason: "topic"}, published(topic, false)},
			way{"publish, retained, on " + topic, broker.RefusalKind{Action: "publish", Reason: "topic"}, published(topic, true)},
			way{"set a will on " + topic, broker.RefusalKind{Action: "will", Reason: "topic"}, willed(topic, false)},
			way{"set a retained will on " + topic, broker.RefusalKind{Action: "will", Reason: "topic"}, willed(topic, true)})
	}
	own := wire.RobotTopic("r1", wire.KindPresence)
	ways = append(ways, way{"publish a retained message", broker.RefusalKind{Action: "publish", Reason: "retained"}, published(own, true)},
		way{"set a retained will on its own topic", broker.RefusalKind{Action: "will", Reason: "retained"}, willed(own, true)})
	for _, filter := range slices.Concat(robotTopics, wire.RobotSubscriptions("r2"), wire.RobotSubscriptions("+"), wire.ServerSubscriptions(), []string{"#", "k8s4r/#", "k8s4r/robots/r2/#", "k8s4r/robots/r1/#", "+/+/+/+/+"}) {
		ways = append(ways, way{"subscribe to " + filter, broker.RefusalKind{Action: "subscribe", Reason: "topic"}, subscribed(filter)})
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := newBrokerBench(t)
			if code := w.try(s); code < 0x80 {
				t.Errorf("reason code %#x", code)
			}
			if n := s.Stats().Refused[w.counts]; n != 1 {
				t.Errorf("%v is counted %d times: %v", w.counts, n, s.Stats().Refused)
			}
			if events := s.nextEvent(); !strings.HasPrefix(events, "r1 ImpersonationRefused ") {
				t.Errorf("event %q", events)
			}
		})
	}
}
