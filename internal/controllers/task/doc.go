// Package task brings Tasks to robots and watches over them there.
//
// The Scheduler decides, in one loop, which robot takes which waiting task. The
// Controller writes what was decided, one compare-and-set at a time, and
// follows each task on its robot: what an ended attempt means, what a lost
// robot means, and when a silent one has had its time.
package task
