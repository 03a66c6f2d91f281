// Package rollout is the controller of Rollouts: it starts their waves, counts their units and stops them if
// too many fail. It writes only the status of Rollouts. The controller of task groups changes the Tasks, and the
// server the agents, as core/rollout.Decide derives from that status.
package rollout
