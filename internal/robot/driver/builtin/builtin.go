// Package builtin is the set of all drivers. It is not part of package driver, which the shim's own
// program links without the client of the Docker engine.
package builtin

import (
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/docker"
)

// NewSet returns all drivers. The engine is the unix socket of the Docker engine.
func NewSet(engine string) driver.Set {
	s := driver.NewProcessSet()
	s["docker"] = &docker.Driver{Socket: engine}
	return s
}
