package broker

import "k8s4r.io/k8s4r/internal/wire"

// mayPretend tells whether somebody who proves nothing may publish on a topic:
// anywhere, but not as a robot that proves itself, and not as the server to it.
func (id Identity) mayPretend(topic string) bool {
	robot := wire.RobotOf(topic)
	return robot == "" || id.Proven == nil || !id.Proven(robot)
}
