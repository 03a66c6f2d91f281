// Package mosquitto configures Mosquitto (2.0 or newer) with the permissions that
// the embedded broker enforces: mosquitto.conf, the state of the dynamic security
// plugin, and the commands that admit and revoke robots.
//
// Robots authenticate by certificate; its common name is their user name and
// client ID. The plugin holds a client and a role for each robot. Robots that the
// plugin does not know may connect, but have no permissions.
package mosquitto
