// Package task binds Tasks to robots, and decides what happens when an attempt ends, a robot
// is lost, or a robot does not stop a task in time.
//
// The cluster scheduler chooses robots (package scheduler). The Controller reads what a
// decision depends on (Input), decides without side effects (Plan), and writes the result
// (Actions), each write as a compare-and-set.
package task
