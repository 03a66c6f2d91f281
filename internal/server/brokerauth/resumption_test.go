package brokerauth

import (
	"bufio"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/identity"
)

// tryConnect connects r1 with a configuration. It returns whether the TLS session was resumed and
// whether the broker accepted the client.
func (s *brokerBench) tryConnect(config *tls.Config) (resumed, accepted bool) {
	s.t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.TLSURL(), "mqtts://"), config)
	if err != nil {
		return false, false
	}
	defer conn.Close()
	resumed = conn.ConnectionState().DidResume
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	c := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "r1", KeepAlive: 60, Properties: &packets.Properties{}}
	if _, err := c.WriteTo(conn); err != nil {
		return resumed, false
	}
	answer, err := packets.ReadPacket(bufio.NewReader(conn))
	if err != nil {
		return resumed, false
	}
	ack, ok := answer.Content.(*packets.Connack)
	return resumed, ok && ack.ReasonCode == packets.ConnackSuccess
}

// A resumed TLS session has the certificate that opened it.
func TestRegistry_ChecksResumedSessions(t *testing.T) {
	accepted := func(s *brokerBench) *robotv1.Robot {
		return robot("hall", "r1", identity.CertificateFingerprint(s.certificate.Leaf))
	}
	for _, c := range []struct {
		name   string
		change func(*brokerBench)
		want   bool
	}{
		{"an accepted robot", func(*brokerBench) {}, true},
		{"a revoked robot", func(s *brokerBench) {
			r := accepted(s)
			r.Spec.Identity = &robotv1.RobotIdentitySpec{Revoked: true}
			s.updateRobot(r)
		}, false},
		{"a robot with another key", func(s *brokerBench) { s.updateRobot(robot("hall", "r1", "sha256:other")) }, false},
		{"a deleted robot", func(s *brokerBench) { s.removeRobot(accepted(s)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newBrokerBench(t)
			config := s.clientTLS()
			config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			if _, ok := s.tryConnect(config); !ok {
				t.Fatal("the robot is refused")
			}
			c.change(s)
			if resumed, ok := s.tryConnect(config); !resumed || ok != c.want {
				t.Errorf("resumed %v, accepted %v, want %v", resumed, ok, c.want)
			}
		})
	}
}
