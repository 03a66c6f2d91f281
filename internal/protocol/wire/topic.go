package wire

import (
	"fmt"
	"strings"
	"time"
)

// The topics that all legacy agents share.
const (
	TopicRegister  = "k8s4r/register"
	TopicHeartbeat = "k8s4r/heartbeat"
)

const robotsPrefix = "k8s4r/robots/"

// QoS is the quality of service of every message. A PUBACK does not mean that the receiver has
// processed the message, so important messages are repeated until they are acknowledged.
const QoS = 1

// Kind is the kind of a robot's topic.
type Kind string

// The kinds of topics that belong to one robot.
const (
	KindRegister  Kind = "register"       // robot to server
	KindHeartbeat Kind = "heartbeat"      // robot to server
	KindPresence  Kind = "presence"       // robot to server, also its last will
	KindStatus    Kind = "status"         // robot to server, one topic a task
	KindLogs      Kind = "logs"           // robot to server, one topic a task
	KindRuns      Kind = "runs"           // robot to server, one topic a task
	KindAck       Kind = "ack"            // server to robot
	KindResponse  Kind = "response"       // server to robot
	KindDispatch  Kind = "tasks/dispatch" // server to robot
	KindState     Kind = "tasks/state"    // server to robot, retained
)

// MaxRepeatInterval is the longest pause before a message without acknowledgement is sent again.
const MaxRepeatInterval = 30 * time.Second

// MessageExpiry returns for how many seconds the broker keeps a message of this kind for a
// disconnected receiver (MQTT 5, 3.3.2.3.3), or nil for no limit. Messages that are repeated
// expire when they are sent again, because an older one would only prove that the robot was
// connected earlier.
func (k Kind) MessageExpiry() *uint32 {
	if k == KindState || k == KindPresence {
		return nil
	}
	seconds := uint32(MaxRepeatInterval / time.Second)
	return &seconds
}

// RobotTopic returns the robot's topic of kind k, which must not be a kind with a topic for each
// task.
func RobotTopic(robotID string, k Kind) string { return robotsPrefix + robotID + "/" + string(k) }

// TaskTopic returns the robot's topic of kind k, KindStatus, KindLogs or KindRuns, for a task.
func TaskTopic(robotID, taskUID string, k Kind) string {
	return robotsPrefix + robotID + "/tasks/" + taskUID + "/" + string(k)
}

// ServerSubscriptions returns the filters that the server subscribes to.
func ServerSubscriptions() []string {
	return []string{
		TopicRegister,
		TopicHeartbeat,
		RobotTopic("+", KindRegister),
		RobotTopic("+", KindHeartbeat),
		RobotTopic("+", KindPresence),
		TaskTopic("+", "+", KindStatus),
		TaskTopic("+", "+", KindLogs),
		TaskTopic("+", "+", KindRuns),
	}
}

// RobotSubscriptions returns the filters that an agent of protocol v2 subscribes to.
func RobotSubscriptions(robotID string) []string {
	return []string{
		RobotTopic(robotID, KindResponse),
		RobotTopic(robotID, KindAck),
		RobotTopic(robotID, KindDispatch),
		RobotTopic(robotID, KindState),
	}
}

// RobotIDInTopic returns the robot whose topic it is, in either direction, or "" for shared
// topics and those of other programs.
func RobotIDInTopic(topic string) string {
	rest, ok := strings.CutPrefix(topic, robotsPrefix)
	id, _, below := strings.Cut(rest, "/")
	if !ok || !below {
		return ""
	}
	return id
}

// Address is a parsed topic.
type Address struct {
	// Shared is set for the two topics of all legacy agents.
	Shared bool
	// RobotID is empty for a shared topic.
	RobotID string
	// TaskUID is set for topics of one task only.
	TaskUID string
	Kind    Kind
}

// ParseTopic parses a topic that the server subscribes to. It returns an error for an invalid
// robot id or task UID.
func ParseTopic(topic string) (Address, error) {
	switch topic {
	case TopicRegister:
		return Address{Shared: true, Kind: KindRegister}, nil
	case TopicHeartbeat:
		return Address{Shared: true, Kind: KindHeartbeat}, nil
	}
	rest, ok := strings.CutPrefix(topic, robotsPrefix)
	if !ok {
		return Address{}, fmt.Errorf("topic %.100q: not a topic of K8s4r", topic)
	}
	part := strings.Split(rest, "/")
	if err := ValidateRobotID(part[0]); err != nil {
		return Address{}, fmt.Errorf("topic %.100q: %w", topic, err)
	}
	a := Address{RobotID: part[0]}
	switch {
	case len(part) == 2 && isOneOf(part[1], KindRegister, KindHeartbeat, KindPresence):
		a.Kind = Kind(part[1])
		return a, nil
	case len(part) == 4 && part[1] == "tasks" && isOneOf(part[3], KindStatus, KindLogs, KindRuns):
		a.Kind, a.TaskUID = Kind(part[3]), part[2]
		return a, validateTaskUID(a.TaskUID)
	}
	return Address{}, fmt.Errorf("topic %.100q: not a topic that robots publish to", topic)
}

func isOneOf(s string, kinds ...Kind) bool {
	for _, k := range kinds {
		if s == string(k) {
			return true
		}
	}
	return false
}

// The names of programs that are clients of the broker. No robot may have them.
const (
	ServerName  = "k8s4r-server"
	ConsoleName = "k8s4r-console"
	AdminName   = "k8s4r-admin"
)

// IsProgramName reports whether a name is one of ServerName, ConsoleName and AdminName.
func IsProgramName(name string) bool {
	return name == ServerName || name == ConsoleName || name == AdminName
}

// ValidateRobotID returns an error if id is the name of a program, or not a DNS label (RFC 1123:
// lower-case letters, digits and '-', at most 63 characters), because it becomes a part of topics and
// the name of an object.
func ValidateRobotID(id string) error {
	switch {
	case IsProgramName(id):
		return fmt.Errorf("robot id %q is reserved for a program; choose another", id)
	case isDNSLabel(id):
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

// maxTaskUID has room for a UUID and the suffix of AttemptUID.
const maxTaskUID = 63

func validateTaskUID(uid string) error {
	if len(uid) > maxTaskUID || !isDNSLabel(uid) {
		return fmt.Errorf("task uid %.80q is not a UID", uid)
	}
	return nil
}
