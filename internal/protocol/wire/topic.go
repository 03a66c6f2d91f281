package wire

import (
	"fmt"
	"strings"
	"time"
)

// The topics that all document agents share.
const (
	TopicRegister  = "k8s4r/register"
	TopicHeartbeat = "k8s4r/heartbeat"
)

const robotsPrefix = "k8s4r/robots/"

// QoS is the quality of service of every message. A PUBACK still proves
// nothing to the sender: what must not be lost is repeated until acknowledged.
const QoS = 1

// Kind says what a topic of one robot carries.
type Kind string

// The kinds of topics that belong to one robot.
const (
	KindRegister  Kind = "register"       // robot to server
	KindHeartbeat Kind = "heartbeat"      // robot to server
	KindPresence  Kind = "presence"       // robot to server, also its last will
	KindStatus    Kind = "status"         // robot to server, one topic a task
	KindLogs      Kind = "logs"           // robot to server, one topic a task
	KindAck       Kind = "ack"            // server to robot
	KindResponse  Kind = "response"       // server to robot
	KindDispatch  Kind = "tasks/dispatch" // server to robot
	KindState     Kind = "tasks/state"    // server to robot, retained
)

// RepeatWithin is the longest pause before something is said again that nobody
// has answered.
const RepeatWithin = 30 * time.Second

// MessageExpiry is how long, in seconds, the broker keeps a message of this
// kind for a receiver who is away (MQTT 5, 3.3.2.3.3). What is repeated lives
// until it is: older than that, it would only tell the server that a robot was
// there ten minutes ago. Nil: for ever, because it is said once.
func (k Kind) MessageExpiry() *uint32 {
	if k == KindState || k == KindPresence {
		return nil
	}
	seconds := uint32(RepeatWithin / time.Second)
	return &seconds
}

// RobotTopic is the robot's topic of kind k, which is not one of the kinds
// that have a topic for each task.
func RobotTopic(robotID string, k Kind) string { return robotsPrefix + robotID + "/" + string(k) }

// TaskTopic is the robot's topic of kind k (KindStatus or KindLogs) for the
// task with this UID.
func TaskTopic(robotID, taskUID string, k Kind) string {
	return robotsPrefix + robotID + "/tasks/" + taskUID + "/" + string(k)
}

// ServerSubscriptions are the filters that the server listens on.
func ServerSubscriptions() []string {
	return []string{
		TopicRegister,
		TopicHeartbeat,
		RobotTopic("+", KindRegister),
		RobotTopic("+", KindHeartbeat),
		RobotTopic("+", KindPresence),
		TaskTopic("+", "+", KindStatus),
		TaskTopic("+", "+", KindLogs),
	}
}

// RobotSubscriptions are the filters that one of our agents listens on.
func RobotSubscriptions(robotID string) []string {
	return []string{
		RobotTopic(robotID, KindResponse),
		RobotTopic(robotID, KindAck),
		RobotTopic(robotID, KindDispatch),
		RobotTopic(robotID, KindState),
	}
}

// RobotOf is the robot between whom and the server a topic is, whichever of the two
// speaks there. Empty: that of all, or none of ours.
func RobotOf(topic string) string {
	rest, ok := strings.CutPrefix(topic, robotsPrefix)
	id, _, below := strings.Cut(rest, "/")
	if !ok || !below {
		return ""
	}
	return id
}

// Address is a topic taken apart.
type Address struct {
	// Shared marks the two topics without a robot in them.
	Shared bool
	// RobotID is empty on a shared topic.
	RobotID string
	// TaskUID is empty but on a topic of one task.
	TaskUID string
	Kind    Kind
}

// ParseTopic takes apart a topic that the server listens on. It refuses a
// robot id that ValidRobotID refuses and a task UID that is not one.
func ParseTopic(topic string) (Address, error) {
	switch topic {
	case TopicRegister:
		return Address{Shared: true, Kind: KindRegister}, nil
	case TopicHeartbeat:
		return Address{Shared: true, Kind: KindHeartbeat}, nil
	}
	rest, ok := strings.CutPrefix(topic, robotsPrefix)
	if !ok {
		return Address{}, fmt.Errorf("topic %.100q is not one of K8s4r", topic)
	}
	part := strings.Split(rest, "/")
	if err := ValidRobotID(part[0]); err != nil {
		return Address{}, fmt.Errorf("topic %.100q: %w", topic, err)
	}
	a := Address{RobotID: part[0]}
	switch {
	case len(part) == 2 && isOneOf(part[1], KindRegister, KindHeartbeat, KindPresence):
		a.Kind = Kind(part[1])
		return a, nil
	case len(part) == 4 && part[1] == "tasks" && isOneOf(part[3], KindStatus, KindLogs):
		a.Kind, a.TaskUID = Kind(part[3]), part[2]
		return a, validTaskUID(a.TaskUID)
	}
	return Address{}, fmt.Errorf("topic %.100q is not one that robots publish on", topic)
}

func isOneOf(s string, kinds ...Kind) bool {
	for _, k := range kinds {
		if s == string(k) {
			return true
		}
	}
	return false
}

// ValidRobotID refuses what is not a DNS label (RFC 1123: lower-case letters,
// digits and '-', 63 characters at most), because a robot id becomes a topic
// and the name of an object.
func ValidRobotID(id string) error {
	if isDNSLabel(id) {
		return nil
	}
	return fmt.Errorf("robot id %.80q must be 1 to 63 characters of a-z, 0-9 and '-', and start and end with a letter or digit", id)
}

func isDNSLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// maxTaskUID leaves room for a UUID and the attempt that AttemptUID appends.
const maxTaskUID = 63

func validTaskUID(uid string) error {
	if len(uid) > maxTaskUID || !isDNSLabel(uid) {
		return fmt.Errorf("task uid %.80q is not a UID", uid)
	}
	return nil
}
