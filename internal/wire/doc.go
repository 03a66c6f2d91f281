// Package wire is what robots and the server say to each other over MQTT:
// topics, messages and their codec (docs/spec/mqtt.md).
//
// Two dialects share it. Document agents speak MQTT 3.1.1 on the two shared
// topics and know no attempts; our agents speak MQTT 5, each on topics of its
// own that a broker can guard. The package imports only the standard library
// and lifecycle, because it also runs on robots.
package wire
