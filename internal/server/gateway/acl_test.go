package gateway

import (
	"slices"
	"strings"
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The gateway accepts a payload only from a robot that the table of permissions allows on the
// topic, even if the broker has no access control.
func TestGateway_EnforcesTheTableOfPermissions(t *testing.T) {
	s := startWith(t, Config{Tokens: oneToken{}}, newJoinedRobot("r1"), newJoinedRobot("r2"))
	for _, row := range acl.Table() {
		topic := strings.NewReplacer("{robot}", "r1", "{task}", "uid", "+", "x").Replace(row.Topic)
		for _, claimed := range []string{"r1", "r2"} {
			sender := acl.Client{Role: acl.Robot, RobotID: claimed}
			before := s.countAllDropped()
			s.receiveMessage(topic, `{"robotId":"`+claimed+`","robotName":"`+claimed+`","taskUid":"uid","attempt":1,"state":"running"}`)
			kind := topic[strings.LastIndex(topic, "/")+1:]
			if !slices.Contains([]string{"register", "heartbeat", "status"}, kind) && slices.Contains(row.Subscribe, acl.Server) {
				continue // its payload contains no robot id
			}
			if refused := s.countAllDropped() > before; refused == sender.CanPublish(topic, false) {
				t.Errorf("a message of %s on %s: refused %v", claimed, topic, refused)
			}
		}
	}
}

// countAllDropped returns how many messages were dropped because of their sender or topic.
func (s *system) countAllDropped() (n float64) {
	for _, kind := range []string{"topic", "register", "heartbeat", "presence", "status", "logs", "runs"} {
		for _, reason := range []dropReason{dropImpersonation, dropMalformed} {
			n += s.countDropped(wire.Kind(kind), reason)
		}
	}
	return n
}
