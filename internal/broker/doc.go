// Package broker is the embedded MQTT broker: versions 3.1.1 and 5, QoS 0 and 1,
// in memory only. It is a wire and keeps nothing that matters, so a program
// that outgrows it can point at any other broker instead (docs/adr/0006).
//
//	listener -> conn: TLS, connect, read one goroutine a connection
//	            conn: write              another
//	            Authority: who it is     asked before a session is touched
//	            hub: sessions, filters, retained messages
//	            session: what waits for one client, connected or not
//
// What a connection may say, hear and leave as its will follows from the
// identity that the Authority gives it (acl.go). Without an Authority everybody
// may do everything.
//
// A publication goes from its publisher's reader through the hub into the
// sessions of those who subscribed, and from there to each connection's
// writer. Nobody waits for a client that does not read, but robots for the
// server: its messages queue, up to a bound, and what is over is dropped and said
// in the log.
package broker
