// Package logship sends what tasks write to the server.
//
// It follows the logs of all attempts (internal/tasklog) and publishes pieces of
// them, until the server has each on its disk. The server is the authority on
// what it has: after a start of the agent a log that holds something already is
// begun with a question, and the acknowledgements say which byte comes next. So
// nothing is kept on the robot beside the logs, nothing that is acknowledged
// goes out again, and a server that has lost something asks for it.
//
// A robot has only so many bytes on the way at a time, and its logs take turns:
// a task that floods its log holds up no other one, and no report. One goroutine
// does all of it, however many tasks there are.
package logship
