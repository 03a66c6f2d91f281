package gateway

import "k8s4r.io/k8s4r/internal/platform/limits"

// Rate and burst of one robot's messages: enough for a thousand tasks that all end,
// with their logs. Robots repeat what is dropped.
const (
	messagesPerSecond = 5000
	messagesAtOnce    = 20000
)

// newLimits bounds the messages of each robot, so that a faulty one does not delay
// others.
func newLimits() *limits.Limits {
	return &limits.Limits{PerSecond: messagesPerSecond, Burst: messagesAtOnce}
}
