// Package taskgroup turns a TaskGroup into Tasks and adds them up.
//
// A group of thousands is created in a moving window: replicas that have a
// robot are created bound to it, in one write, and a few more so that people
// see what waits and why. What is not created costs nothing to call off. A
// Task that somebody deletes while its group goes on is created anew, and so
// runs anew.
package taskgroup
