// Package archive records in SQL what becomes of jobs, flows, tasks and robots, as it
// happens, and marks what has ended and is recorded whole. The controllers that remove what has been
// kept for long enough wait for that mark.
package archive
