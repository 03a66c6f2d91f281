// Package acl is the table of topic permissions: which MQTT clients may publish
// and subscribe to which topics. The embedded broker enforces it, Mosquitto gets
// it as a file, and the gateway checks the topics of the messages that it receives.
package acl

import (
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Role is what an MQTT client is to the others. The zero value has no rights.
type Role string

// The roles of the table.
const (
	// Robot is an agent with protocol v2. It has the topics of its own robot ID.
	Robot Role = "robot"
	// LegacyAgent is an agent with protocol v1. It has the same topics as a Robot,
	// and those that all legacy agents share.
	LegacyAgent Role = "legacy-agent"
	// Server is k8s4r-server.
	Server Role = "server"
	// Console is k8s4r-console. It publishes events and subscribes to nothing.
	Console Role = "console"
)

// The roles without an entry in the table.
const (
	// Anonymous is a client without a certificate that an operator has allowed. It
	// may subscribe to everything, and publish on all topics but those of the
	// console and of authenticated robots.
	Anonymous Role = "anonymous"
	// Unrestricted is any client of a broker without access control.
	Unrestricted Role = "unrestricted"
)

// Levels of a topic that stand for any value of their kind.
const (
	robotLevel = "{robot}"
	taskLevel  = "{task}"
)

// Permission is one row of the table: a topic, and the roles that may use it.
type Permission struct {
	// Topic is a filter in which {robot} stands for a robot ID, which has to be the
	// client's own if the client is a robot, and {task} for the UID of a task.
	Topic     string
	Publish   []Role
	Subscribe []Role
	CanRetain bool // publishers may have the broker retain their messages

	levels []string
}

// table is read for every message, so it is built once.
var table = buildTable()

// Table returns all permissions. Topics that are not in it are denied.
func Table() []Permission { return slices.Clone(table) }

func buildTable() []Permission {
	permissions := []Permission{
		{Topic: wire.TopicRegister, Publish: []Role{LegacyAgent}, Subscribe: []Role{Server}},
		{Topic: wire.TopicHeartbeat, Publish: []Role{LegacyAgent}, Subscribe: []Role{Server}},
		fromRobot(wire.RobotTopic(robotLevel, wire.KindRegister)),
		fromRobot(wire.RobotTopic(robotLevel, wire.KindHeartbeat)),
		fromRobot(wire.RobotTopic(robotLevel, wire.KindPresence)),
		fromRobot(wire.TaskTopic(robotLevel, taskLevel, wire.KindStatus)),
		fromRobot(wire.TaskTopic(robotLevel, taskLevel, wire.KindLogs)),
		fromRobot(wire.TaskTopic(robotLevel, taskLevel, wire.KindRuns)),
		toRobot(wire.KindResponse),
		toRobot(wire.KindAck),
		toRobot(wire.KindDispatch),
		toRobot(wire.KindState),
	}
	for _, topic := range wire.EventTopics() {
		permissions = append(permissions, Permission{Topic: topic, Publish: []Role{Console}})
	}
	for i := range permissions {
		permissions[i].levels = strings.Split(permissions[i].Topic, "/")
	}
	return permissions
}

// fromRobot never allows retained messages: they would outlive the robot's
// right to publish them.
func fromRobot(topic string) Permission {
	return Permission{Topic: topic, Publish: []Role{Robot, LegacyAgent}, Subscribe: []Role{Server}}
}

func toRobot(kind wire.Kind) Permission {
	return Permission{
		Topic: wire.RobotTopic(robotLevel, kind), Publish: []Role{Server}, Subscribe: []Role{Robot, LegacyAgent},
		CanRetain: kind == wire.KindState,
	}
}

// Client is an MQTT client whose permissions are checked.
type Client struct {
	Role Role
	// RobotID is the client's own robot ID, if it is a Robot or a LegacyAgent. Its
	// syntax has to be checked by the caller: it must not contain wildcards.
	RobotID string
	// IsAuthenticated reports whether a robot has a certificate, so that an
	// Anonymous client may not use its topics. If nil, no robot has one.
	IsAuthenticated func(robotID string) bool
}

// CanPublish reports whether the client may publish on a valid topic, and have
// the message retained if retain is set.
func (c Client) CanPublish(topic string, retain bool) bool {
	switch c.Role {
	case Unrestricted:
		return true
	case Anonymous:
		return c.canPublishAnonymously(topic)
	default: // by the table
	}
	for _, p := range table {
		if slices.Contains(p.Publish, c.Role) && c.matchTopic(p.levels, topic) {
			return (p.CanRetain || !retain) && c.hasValidLevels(topic)
		}
	}
	return false
}

// canPublishAnonymously also denies topics below an authenticated robot's that
// are not in the table, because the table may grow.
func (c Client) canPublishAnonymously(topic string) bool {
	if (Client{Role: Console}).CanPublish(topic, false) {
		return false
	}
	robot := wire.RobotIDInTopic(topic)
	return robot == "" || c.IsAuthenticated == nil || !c.IsAuthenticated(robot)
}

// hasValidLevels reports whether the levels that a robot chooses itself are IDs.
func (c Client) hasValidLevels(topic string) bool {
	if !c.isRobot() {
		return true
	}
	_, err := wire.ParseTopic(topic)
	return err == nil
}

// CanSubscribe reports whether the client may receive every message that a valid
// filter matches.
func (c Client) CanSubscribe(filter string) bool {
	if c.Role == Unrestricted || c.Role == Anonymous {
		return true
	}
	return slices.ContainsFunc(c.SubscribeFilters(), func(allowed string) bool { return coversFilter(allowed, filter) })
}

// PublishFilters returns the filters of the topics that the client may publish on.
func (c Client) PublishFilters() []string {
	return c.filtersWhere(func(p Permission) bool { return slices.Contains(p.Publish, c.Role) })
}

// SubscribeFilters returns the filters that the client may subscribe to.
func (c Client) SubscribeFilters() []string {
	return c.filtersWhere(func(p Permission) bool { return slices.Contains(p.Subscribe, c.Role) })
}

func (c Client) filtersWhere(applies func(Permission) bool) (filters []string) {
	for _, p := range table {
		if !applies(p) {
			continue
		}
		levels := make([]string, len(p.levels))
		for i, level := range p.levels {
			levels[i] = c.levelFor(level)
		}
		filters = append(filters, strings.Join(levels, "/"))
	}
	return filters
}

// levelFor returns a level of the table as a level of an MQTT filter, with the
// robot ID of a client that is a robot.
func (c Client) levelFor(level string) string {
	switch {
	case level == taskLevel, level == robotLevel && !c.isRobot():
		return "+"
	case level == robotLevel:
		return c.RobotID
	}
	return level
}

func (c Client) isRobot() bool { return c.Role == Robot || c.Role == LegacyAgent }

// matchTopic reports whether a topic has the levels of a row of the table.
func (c Client) matchTopic(levels []string, topic string) bool {
	for i, level := range levels {
		got, rest, more := strings.Cut(topic, "/")
		want := c.levelFor(level)
		if want != "+" && want != got || more != (i < len(levels)-1) {
			return false
		}
		topic = rest
	}
	return true
}

// coversFilter reports whether an allowed filter, which has no '#', matches every
// topic that another filter matches.
func coversFilter(allowed, filter string) bool {
	a, f := strings.Split(allowed, "/"), strings.Split(filter, "/")
	return slices.EqualFunc(a, f, func(want, got string) bool { return got != "#" && (want == "+" || want == got) })
}
