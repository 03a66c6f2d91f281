// Package wire has the MQTT protocol between robots and the server: topics, messages and their
// encoding (docs/reference/mqtt.md).
//
// There are two versions. Legacy agents speak v1: MQTT 3.1.1 on two shared topics, without
// attempts. Other agents speak v2: MQTT 5, each on topics of its own that a broker can protect.
// The package imports only the standard library, because it also runs on robots.
package wire
