package wire

import "strings"

// What the console says of what happens. Only it speaks there, and no robot may listen.
const (
	eventsPrefix = "k8s4r/events/"
	// TopicLifecycle has when the console comes and goes.
	TopicLifecycle = eventsPrefix + "lifecycle"
)

// EventTopic is where changes of an object are published: namespace, kind and name, or between
// them the kind and name of what it belongs to. Without its name it is where changes of all that
// belong there are.
func EventTopic(namespace string, path ...string) string {
	return eventsPrefix + namespace + "/" + strings.Join(path, "/")
}

// EventTopics are the filters of all topics of events.
func EventTopics() []string {
	return []string{TopicLifecycle, EventTopic("+", "+", "+"), EventTopic("+", "+", "+", "+"), EventTopic("+", "+", "+", "+", "+")}
}
