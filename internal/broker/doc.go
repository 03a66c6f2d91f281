// Package broker is the embedded MQTT broker: versions 3.1.1 and 5, QoS 0 and 1, in
// memory only. It stores nothing durable, so a program can use any other broker instead
// (docs/explanation/adr/0006). Each connection has one goroutine that reads and one that writes. The
// Authenticator identifies a client before a session is touched; its permissions are
// those of protocol/acl. The hub routes a publication from the publisher's reader into
// the sessions of the subscribers, whose writers send it. Only robots wait for a slow
// server. Other messages queue up to a limit; then they are dropped, counted and logged.
package broker
