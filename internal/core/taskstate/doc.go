// Package taskstate derives from a Task's spec and status what both the cluster
// scheduler and the task controller need: its replica, its required robot, its open
// attempts, and when it may be placed again.
//
// All functions are pure: no client, no clock.
package taskstate
