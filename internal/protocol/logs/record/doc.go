// Package record is the form in which the output of a task is kept: on its
// robot, on the wire and on the server (docs/reference/kinds/task.md).
//
// Both streams of one attempt stand in one log, in the order in which they were
// written, a record a line:
//
//	2026-11-21T17:24:50.000000Z stdout F a whole line
//	2026-11-21T17:24:50.120000Z stderr P the beginning of a line, or of its next part
//
// P (partial) says that the line goes on in the next record of its stream. The
// writer splits lines that are very long, and gives up waiting for the end of
// one soon, so that a prompt or a progress bar is seen while it stands there.
package record
