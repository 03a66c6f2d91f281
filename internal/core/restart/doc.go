// Package restart decides whether and when a task that has ended starts again on the same robot.
//
// An agent that restarts tasks itself and the manager, which restarts those of other agents, use the
// same rules, so a task behaves the same with both. The package has no clock and imports only the
// standard library, because the agent uses it, too.
package restart
