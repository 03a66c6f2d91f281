// Package placement decides which robot runs which tasks: a Snapshot in, Decisions out. It uses
// no clock, no client and no API object, so every rule has table tests.
//
// A Demand is a set of tasks that must go to one robot: the tasks of one replica, or a single
// task. Demands are placed in the order of their rank. Each gets the best robot that passes every
// check. A failed check is a Rejection; the rejections of all robots form a Diagnosis.
//
// Labels, attributes and drivers of a robot seldom change, so a Planner caches the results of
// these checks. Free room changes all the time and is checked in each cycle. The cache never
// changes a decision: Decide uses a Planner with an empty cache.
package placement
