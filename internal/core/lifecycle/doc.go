// Package lifecycle has the state machines of K8s4r as tables.
//
// The manager and the server use the same tables, so a report that arrives late, twice or out of
// order has the same effect everywhere: a signal that a state does not accept changes nothing.
// The package imports only the standard library, because it also runs on robots.
package lifecycle
