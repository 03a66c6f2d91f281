// Package robot approves robots and maintains their phase: Online while they are connected,
// Unknown after a disconnect, Offline when the last heartbeat is too old.
package robot
