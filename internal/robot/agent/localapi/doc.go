// Package localapi is the agent's socket for people at the robot: it shows tasks and their logs without a
// network. The kernel reports who is at the other end of a connection (SO_PEERCRED). Root, the
// agent's own user and the members of one group may use the socket.
package localapi
