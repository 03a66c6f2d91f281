// Package archive records the history of jobs, flows, tasks and robots in SQL and marks ended
// objects that are recorded completely. The controllers that delete expired objects wait for
// that mark.
package archive
