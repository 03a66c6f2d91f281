package broker

import (
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/wire"
)

// mayPublish tells whether an identity may say something on a topic, which is
// valid, and have it retained.
func (id Identity) mayPublish(topic string, retain bool) bool {
	switch id.Role {
	case roleAny:
		return true
	case RoleAnonymous:
		return !isEvent(topic) && id.mayPretend(topic)
	case RoleServer:
		kind, ok := serverTopic(topic)
		return ok && (!retain || kind == wire.KindState)
	case RoleConsole:
		return !retain && isEvent(topic)
	case RoleRobot, RoleLegacy:
		// What a robot leaves behind would outlive its right to say it.
		return !retain && id.owns(topic)
	default:
		return false
	}
}

// owns tells whether robots publish on a topic, and this is the one.
func (id Identity) owns(topic string) bool {
	a, err := wire.ParseTopic(topic)
	if err != nil {
		return false
	}
	if a.Shared {
		return id.Role == RoleLegacy
	}
	return a.RobotID == id.Name
}

// isEvent tells whether the console publishes on a topic.
func isEvent(topic string) bool {
	return slices.ContainsFunc(wire.EventTopics(), func(filter string) bool { return matches(filter, topic) })
}

// serverTopic is the kind of a topic that only the server publishes on.
func serverTopic(topic string) (wire.Kind, bool) {
	for _, kind := range []wire.Kind{wire.KindAck, wire.KindResponse, wire.KindDispatch, wire.KindState} {
		if matches(wire.RobotTopic("+", kind), topic) {
			return kind, true
		}
	}
	return "", false
}

// maySubscribe tells whether all that a filter, which is valid, takes in is for
// an identity to hear.
func (id Identity) maySubscribe(filter string) bool {
	var own []string
	switch id.Role {
	case roleAny, RoleAnonymous:
		return true
	case RoleServer:
		own = wire.ServerSubscriptions()
	case RoleRobot, RoleLegacy:
		own = wire.RobotSubscriptions(id.Name)
	default:
		return false
	}
	return slices.ContainsFunc(own, func(allowed string) bool { return covers(allowed, filter) })
}

// covers tells whether an allowed filter, which has no '#', takes in all that
// another one does.
func covers(allowed, filter string) bool {
	a, f := strings.Split(allowed, "/"), strings.Split(filter, "/")
	if len(a) != len(f) {
		return false
	}
	for i := range f {
		if f[i] == "#" || f[i] != a[i] && a[i] != "+" {
			return false
		}
	}
	return true
}
