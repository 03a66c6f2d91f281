// Package record is the format in which the output of a task is stored on its robot and on the
// server, and sent between them (docs/reference/kinds/task.md).
//
// One log has both streams of an attempt, in the order in which they were written, with one record in
// each line:
//
//	2026-11-21T17:24:50.000000Z stdout F a whole line
//	2026-11-21T17:24:50.120000Z stderr P the beginning of a line, or of its next part
//
// P (partial) means that the line continues in the next record of its stream. The writer splits very
// long lines, and writes incomplete lines after a short delay, so that a prompt or a progress bar is
// visible at once.
//
// A task that runs a range of an array has the index of each record behind the tag:
//
//	2026-11-21T17:24:50.000000Z stdout F#17 a whole line of index 17
package record
