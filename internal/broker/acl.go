package broker

import "k8s4r.io/k8s4r/internal/protocol/acl"

// permissions returns the client of the table of topic permissions.
func (id Identity) permissions() acl.Client {
	return acl.Client{Role: id.Role, RobotID: id.Name, IsAuthenticated: id.IsAuthenticated}
}

// mayPublish reports whether a client may publish on a valid topic, and have the
// message retained if retain is set.
func (id Identity) mayPublish(topic string, retain bool) bool {
	return id.permissions().CanPublish(topic, retain)
}

// maySubscribe reports whether a client may receive all that a valid filter matches.
func (id Identity) maySubscribe(filter string) bool { return id.permissions().CanSubscribe(filter) }
