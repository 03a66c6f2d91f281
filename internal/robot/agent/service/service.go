// Package service contains the systemd unit that runs the agent.
package service

import (
	_ "embed"
	"strings"
)

//go:embed k8s4r-agent.service
var unit string

// DefaultConfig is the configuration file of the service.
const DefaultConfig = "/etc/k8s4r/agent.yaml"

// Unit returns the unit for a program at this absolute path, with this configuration file.
func Unit(program, config string) string {
	return strings.NewReplacer("@PROGRAM@", escapePath(program), "@CONFIG@", escapePath(config)).Replace(unit)
}

// escapePath quotes a path for the command line of a unit.
func escapePath(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(path) + `"`
}
