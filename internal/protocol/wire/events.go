package wire

import "strings"

// The topics of events. Only the console publishes to them, and no robot may subscribe to them.
const (
	eventsPrefix = "k8s4r/events/"
	// TopicLifecycle has the start and stop of the console.
	TopicLifecycle = eventsPrefix + "lifecycle"
)

// EventTopic returns the topic of changes of an object: namespace, kind and name, with the kind
// and name of its owner between them if it has one. Without the name it is the topic of all such
// objects.
func EventTopic(namespace string, path ...string) string {
	return eventsPrefix + namespace + "/" + strings.Join(path, "/")
}

// EventTopics returns the filters of all topics of events.
func EventTopics() []string {
	return []string{TopicLifecycle, EventTopic("+", "+", "+"), EventTopic("+", "+", "+", "+"), EventTopic("+", "+", "+", "+", "+")}
}
