package restart

import "time"

// The types of tasks, as in their specs. Type batch has no default policy and is not kept running.
const (
	typeService  = "service"
	typeSystem   = "system"
	typeSysbatch = "sysbatch" // a task of a sysbatch job, which always has a policy, or an init task of a system job
)

// DefaultPolicy returns the policy of a task of this type that has no restartPolicy
// (docs/reference/kinds/job.md).
func DefaultPolicy(taskType string) Policy {
	switch taskType {
	case typeService:
		return NewPolicy(taskType, Fields{Attempts: 2, Interval: 30 * time.Minute, Delay: 15 * time.Second})
	case typeSystem, typeSysbatch:
		return NewPolicy(taskType, Fields{Attempts: 2, Interval: 30 * time.Minute, Delay: 15 * time.Second, Mode: modeDelay})
	}
	return NewPolicy(taskType, Fields{})
}

// IsKeptRunning reports whether a task of this type starts again also after it has ended without
// failing.
func IsKeptRunning(taskType string) bool { return taskType == typeService || taskType == typeSystem }
