// Package placement decides which robot takes which tasks: a Snapshot in,
// Decisions out, and nothing else. It knows no clock, no client and no API
// object, so a table can state every rule of it.
//
// A Demand is what must go to one robot together: the tasks of one replica,
// or one task by itself. Demands are served in the order of their rank; each
// takes the best robot that every check lets through. A "no" carries its
// reason, and the refusals of a demand add up to a sentence for people.
package placement
