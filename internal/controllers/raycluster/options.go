package raycluster

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// DefaultTick is the least time between two writes of a status that only count.
const DefaultTick = time.Second

// Options are what an operator has chosen for all clusters.
type Options struct {
	// Build is what shapes Pods, and what the environment switches.
	Build build.Settings
	// Gates are features that can be switched off.
	Gates Gates
	// Namespaces whose clusters are worked on, as the manager's cache has them.
	// Empty means all.
	Namespaces map[string]cache.Config
	// Tick is the least time between two writes of a status that only count. 0
	// means DefaultTick.
	Tick time.Duration
}

func (o Options) withDefaults() Options {
	if o.Tick == 0 {
		o.Tick = DefaultTick
	}
	o.Build.ReplicaIndex = o.Gates.MultiHostIndexing
	return o
}
