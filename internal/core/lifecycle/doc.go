// Package lifecycle contains the state machines of tasks, jobs, robots, flows and pod jobs as
// tables.
//
// The manager and the server use the same tables, so a report that arrives late, twice or out of
// order has the same effect in both: a signal that a state does not accept changes nothing. The
// package imports only the standard library, because the agent uses it, too.
package lifecycle
