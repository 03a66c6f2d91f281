// Package placement decides which robot takes which tasks: a Snapshot in,
// Decisions out, and nothing else. It knows no clock, no client and no API
// object, so a table can state every rule of it.
//
// A Demand is what must go to one robot together: the tasks of one replica,
// or one task by itself. Demands are served in the order of their rank; each
// takes the best robot that every check lets through. A "no" carries its
// reason, and the refusals of a demand add up to a sentence for people.
//
// Checks are of two kinds. What a robot is (its labels, attributes, drivers)
// changes seldom, so a Planner remembers what was made of it; what it holds
// changes all the time and is looked at anew. What a Planner remembers never
// changes what it decides: Decide is a Planner that has just been born.
package placement
