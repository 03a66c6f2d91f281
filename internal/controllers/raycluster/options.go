package raycluster

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// DefaultTick is the default of Options.Tick.
const DefaultTick = time.Second

// Options are the operator's settings for all clusters.
type Options struct {
	// Build holds the settings that affect the built objects, and those that the environment sets.
	Build build.Settings
	// Gates are features that can be switched off.
	Gates Gates
	// Namespaces are the namespaces whose clusters are reconciled, in the form of the manager's
	// cache options. If empty, all are.
	Namespaces map[string]cache.Config
	// Tick is the least time between two status writes that only change counters. If 0,
	// DefaultTick.
	Tick time.Duration
}

func (o Options) withDefaults() Options {
	if o.Tick == 0 {
		o.Tick = DefaultTick
	}
	o.Build.ReplicaIndex = o.Gates.MultiHostIndexing
	return o
}
