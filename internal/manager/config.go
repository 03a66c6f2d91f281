package manager

import (
	"time"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/retention"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/manager/admission"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/platform/tracing"
)

// Config is the configuration of all controllers.
type Config struct {
	// Controllers selects the controllers to run, as in kube-controller-manager: * is all, name is
	// one, -name is all but this one. If empty, *.
	Controllers []string
	// Namespaces are the namespaces whose objects are reconciled. If empty, all are. The cache of
	// the manager must have the same (CacheOptions).
	Namespaces []string
	// OfflineAfter is how long a robot may be unresponsive before it is Offline. If 0, 5m.
	OfflineAfter time.Duration
	// ApproveRobots selects who approves new robots. If empty, robot.ApproveAuto.
	ApproveRobots robot.Approval
	// Concurrency is the number of objects of one kind that are reconciled at a time. If 0, 8.
	Concurrency int
	// StatusTick is the least time between two status writes of a Job or TaskGroup that only show
	// progress, and before the first one. If 0, 250ms.
	StatusTick time.Duration
	// TaskWindow is the most Tasks of a group that exist and have not ended. If 0, 500.
	TaskWindow int
	// MaxRequeue is how often in a row a failed reconcile of a flow is retried before it waits for
	// a change. If negative or nil, there is no limit.
	MaxRequeue *int
	// Ray are the settings for the Pods of RayClusters. If nil, build.DefaultSettings.
	Ray *build.Settings
	// RayGates are features of RayClusters that can be switched off. If nil,
	// raycluster.DefaultGates.
	RayGates *raycluster.Gates
	// rayError is the error of reading Ray from the environment.
	rayError error
	// file is the path of a settings file in KubeRay's format. If empty, there is none.
	file string
	// log is how the manager logs.
	log logConfig
	// ignored are settings of KubeRay's operator that were given and have no effect.
	ignored ignoredSettings
	// Archive is the address of the archive (archive.Open). If empty, there is none, and no
	// deletion waits for it.
	Archive string
	// Retention limits what the archive keeps.
	Retention archive.Retention
	// Finished limits the finished objects of each namespace. If its age is 0, they are kept, except
	// in namespaces whose annotations have limits.
	Finished retention.Limits
	// Webhook is the configuration of the admission webhook. The zero value disables it.
	Webhook admission.Config
	// API is where plans of changes are served. Without a listener and an address, they are not.
	API apiserve.Config
	// Tracer records the traces of tasks. If nil, none are recorded.
	Tracer *tracing.Tracer
	// Restore is closed after a restore from a backup: until the robots have reported, only the
	// controllers of robots run. If nil, it is open.
	Restore *restore.Gate
	// Now returns the current time. If nil, time.Now.
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
