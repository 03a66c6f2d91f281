// Package explain describes why a task or the tasks of a job wait, or how they ended, for the
// command line and the console. It decides nothing and contacts no robot: it only reads API
// objects.
package explain
