// Package taskstate derives facts from a Task's spec and status that both the
// cluster scheduler and the task controller need: its replica, the robot that it is
// tied to, its open attempts, and when it may start again.
//
// All functions are pure: no client, no clock.
package taskstate
