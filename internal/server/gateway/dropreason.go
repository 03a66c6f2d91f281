package gateway

import "k8s4r.io/k8s4r/internal/protocol/wire"

// dropReason is why a message or a report had no effect: the label "reason" of
// k8s4r_server_dropped_messages_total. If empty, it had an effect.
type dropReason string

// Of messages.
const (
	dropImpersonation dropReason = "impersonation" // it names another robot than its topic
	dropInvalidToken  dropReason = "invalid-token"
	dropMalformed     dropReason = "malformed"
	dropQueueFull     dropReason = "queue-full"
	dropRevoked       dropReason = "revoked"
	dropTooFast       dropReason = "too-fast"
	dropTooLarge      dropReason = "too-large"
	dropUnstoredLog   dropReason = "unstored-log" // the robot sends it again
)

// Of reports. Illegal transitions and repeated reports have metrics of their own, and other reports
// with nothing new are not counted.
const (
	dropIllegalTransition dropReason = "illegal-transition"
	dropNothingNew        dropReason = "nothing-new"
	dropOldAttempt        dropReason = "old-attempt"
	dropRefused           dropReason = "refused-by-api-server"
	dropRepeated          dropReason = "repeated"
	dropTooMany           dropReason = "too-many-for-one-task"
	dropTooMuchProgress   dropReason = "too-much-progress" // of ranges; a later report has all of it
	dropUnknownAttempt    dropReason = "unknown-attempt"
	dropUnknownState      dropReason = "unknown-state"
	dropUnknownTask       dropReason = "unknown-task"
	dropWrongRobot        dropReason = "wrong-robot"
)

// countDropped counts n messages or reports of a kind.
func (m *metrics) countDropped(kind wire.Kind, reason dropReason, n int) {
	m.dropped.WithLabelValues(string(kind), string(reason)).Add(float64(n))
}
