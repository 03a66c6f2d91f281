// Package lifecycle holds the state machines of K8s4r as tables.
//
// The manager, the server and the agent read the same tables, so a word that
// arrives late, twice or out of order is judged once, in one place: an edge
// that is not in a table is refused, never applied. The package imports
// nothing outside the standard library, because it also runs on robots.
package lifecycle
