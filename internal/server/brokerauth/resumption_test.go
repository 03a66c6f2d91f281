package brokerauth

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/identity"
)

// tryConnect connects r1 with a configuration. It returns whether the TLS session was resumed, and
// the reason code of the broker's answer.
func (s *brokerBench) tryConnect(config *tls.Config) (resumed bool, reason byte) {
	s.t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.TLSURL(), "mqtts://"), config)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "r1", KeepAlive: 60, Properties: &packets.Properties{}}
	ack := s.request(conn, c).(*packets.Connack) // reads the ticket of the session, too
	return conn.ConnectionState().DidResume, ack.ReasonCode
}

// A resumed TLS session has the certificate that opened it. The reason decides whether an agent
// requests another certificate, so clients must get it, and not only a broken connection.
func TestRegistry_ChecksResumedSessions(t *testing.T) {
	accepted := func(s *brokerBench) *robotv1.Robot {
		return robot("hall", "r1", identity.CertificateFingerprint(s.certificate.Leaf))
	}
	for _, c := range []struct {
		name   string
		change func(*brokerBench)
		want   byte
	}{
		{"an accepted robot", func(*brokerBench) {}, packets.ConnackSuccess},
		{"a revoked robot", func(s *brokerBench) {
			r := accepted(s)
			r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
			s.updateRobot(r)
		}, packets.ConnackNotAuthorized},
		{"a robot with another key", func(s *brokerBench) { s.updateRobot(robot("hall", "r1", "sha256:other")) }, packets.ConnackNotAuthorized},
		{"a deleted robot", func(s *brokerBench) { s.removeRobot(accepted(s)) }, packets.ConnackNotAuthorized},
		{"before robots are listed", func(s *brokerBench) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ready = false
		}, packets.ConnackServerUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newBrokerBench(t)
			config := s.clientTLS()
			config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			if _, reason := s.tryConnect(config); reason != packets.ConnackSuccess {
				t.Fatalf("the robot is refused: %#x", reason)
			}
			c.change(s)
			if resumed, reason := s.tryConnect(config); !resumed || reason != c.want {
				t.Errorf("resumed %v, reason %#x, want %#x", resumed, reason, c.want)
			}
		})
	}
}
