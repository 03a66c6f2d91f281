// Package window decides when running tasks of robots may be interrupted by rollouts and preemption: while a
// maintenance window of the robot is open and no person at the robot holds it.
package window
