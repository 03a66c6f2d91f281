// Package logship sends what tasks write to the server, and the records of their runs.
//
// It follows the logs of all attempts (internal/protocol/logs/record and runlog) and publishes pieces of
// them until the server has stored each of them. The server decides what it has: after a start
// of the agent, a log with content is first queried, and acknowledgments name the next byte.
// So the robot keeps no state beside the logs, nothing that is acknowledged is sent again,
// and a server that has lost data gets it again.
//
// The bytes that are not acknowledged are limited, and logs take turns: a task that floods
// its log delays neither other logs nor reports. One goroutine serves all logs.
package logship
