// Package task writes which robot runs a Task, and follows the Task on its robot.
//
// The cluster scheduler chooses robots (package scheduler). The Controller reads what a
// decision depends on (Input), decides without side effects (Plan), and writes the result
// (Actions), each write as a compare-and-set. It decides what follows an attempt that has
// ended, a robot that is lost, and a robot that does not end a task in time.
package task
