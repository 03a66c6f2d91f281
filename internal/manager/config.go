package manager

import (
	"time"

	"k8s4r.io/k8s4r/internal/controllers/robot"
)

// Config of all controllers.
type Config struct {
	// Controllers to run, in the spelling of kube-controller-manager: * is
	// all, name is one, -name is all but this one. Empty means *.
	Controllers []string
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
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
