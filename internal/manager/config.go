package manager

import (
	"time"

	"k8s4r.io/k8s4r/internal/admission"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/tracing"
)

// Config of all controllers.
type Config struct {
	// Controllers to run, in the spelling of kube-controller-manager: * is
	// all, name is one, -name is all but this one. Empty means *.
	Controllers []string
	// Namespaces whose objects are worked on. Empty means all. The cache of the
	// manager must hold the same (CacheOptions).
	Namespaces []string
	// OfflineAfter is how long a robot may be silent before it is Offline. 0
	// means 5m.
	OfflineAfter time.Duration
	// ApproveRobots says who lets a new robot in. Empty means
	// robot.ApproveAuto.
	ApproveRobots robot.Approval
	// Concurrency is how many objects of one kind are worked on at a time. 0
	// means 8.
	Concurrency int
	// StatusTick is the least time between two writes of a Job's or a
	// TaskGroup's status that only count. 0 means 250ms.
	StatusTick time.Duration
	// TaskWindow is how many Tasks of a group exist at a time without having
	// ended. 0 means 500.
	TaskWindow int
	// MaxRequeue is how often in a row a flow whose work fails is tried again
	// before it waits for a change. Below 0 is without limit, and so is nil.
	MaxRequeue *int
	// Ray is what shapes the Pods of RayClusters. Nil means build.DefaultSettings.
	Ray *build.Settings
	// RayGates are features of RayClusters that can be switched off. Nil means
	// raycluster.DefaultGates.
	RayGates *raycluster.Gates
	// rayError is what is wrong with the environment that Ray was read from.
	rayError error
	// file of settings, in KubeRay's form. Empty: there is none.
	file string
	// Archive is the address of the archive (archive.Open). Empty: there is none, and
	// nothing waits for it.
	Archive string
	// Retention is what is kept in it.
	Retention archive.Retention
	// Webhook says where workflows are judged at admission. The zero value: nowhere.
	Webhook admission.Config
	// Tracer records what becomes of tasks. Nil: nobody does.
	Tracer *tracing.Tracer
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if len(c.Controllers) == 0 {
		c.Controllers = []string{"*"}
	}
	if c.Concurrency == 0 {
		c.Concurrency = 8
	}
	if c.MaxRequeue == nil {
		without := -1
		c.MaxRequeue = &without
	}
	if c.Ray == nil {
		settings := build.DefaultSettings()
		c.Ray = &settings
	}
	if c.RayGates == nil {
		gates := raycluster.DefaultGates()
		c.RayGates = &gates
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
