// Package service has the systemd unit that runs the agent.
package service

import (
	_ "embed"
	"strings"
)

//go:embed k8s4r-agent.service
var unit string

// DefaultConfig is the configuration file of the service.
const DefaultConfig = "/etc/k8s4r/agent.yaml"

// Unit is the unit for a program at this absolute path, with this configuration
// file.
func Unit(program, config string) string {
	return strings.NewReplacer("@PROGRAM@", escape(program), "@CONFIG@", escape(config)).Replace(unit)
}

// escape writes a path as systemd reads it on a command line.
func escape(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(path) + `"`
}
