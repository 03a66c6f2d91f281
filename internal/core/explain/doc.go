// Package explain returns why a task or the tasks of a job wait, or how they ended, for the
// command line and the console. It decides nothing and asks no robot: everything is in the
// objects that it is given.
package explain
