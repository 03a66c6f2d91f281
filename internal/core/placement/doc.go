// Package placement decides which robot takes which tasks: a Snapshot in, Decisions out. It knows
// no clock, no client and no API object, so tables can test every rule.
//
// A Demand is what must go to one robot together: the tasks of one replica, or a single task.
// Demands are served in the order of their rank. Each takes the best robot that passes every
// check. A failed check is a Rejection; those of all robots add up to a Diagnosis.
//
// Labels, attributes and drivers of a robot change seldom, so a Planner caches the results of
// these checks. Free room changes all the time and is checked anew. The cache never changes a
// decision: Decide uses a Planner with an empty one.
package placement
