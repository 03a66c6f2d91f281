package gateway

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// usageWriteInterval is the minimum time between two writes for resource usage alone,
// and from the start to the first: for 10,000 tasks at most 17 writes per second.
const usageWriteInterval = 10 * time.Minute

// usageTracker has the resource usage of running tasks. It is in memory only: after a
// restart, robots report it again.
type usageTracker struct {
	m *metrics

	mu    sync.Mutex
	byUID map[types.UID]*taskUsage
	cores float64 // of all together
	bytes float64
}

type taskUsage struct {
	attempt      int32
	cores, bytes float64
	// written is when it was last written, or first reported.
	written time.Time
}

func newUsageTracker(m *metrics) *usageTracker {
	return &usageTracker{m: m, byUID: map[types.UID]*taskUsage{}}
}

// recordUsage records the usage of an attempt, and reports whether it is due to be
// written.
func (u *usageTracker) recordUsage(now time.Time, usage wire.TaskUsage) (due bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	uid, next := types.UID(usage.UID), &taskUsage{attempt: usage.Attempt, cores: usage.CPUPercent / 100, bytes: float64(usage.MemoryBytes), written: now}
	last := u.byUID[uid]
	if last != nil && last.attempt == usage.Attempt {
		if due = now.Sub(last.written) >= usageWriteInterval; !due {
			next.written = last.written
		}
	}
	u.putLocked(uid, next)
	return due
}

func (u *usageTracker) forgetTask(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.putLocked(uid, nil)
}

// putLocked replaces the usage of a task and updates the sums. If next is nil, it is
// removed.
func (u *usageTracker) putLocked(uid types.UID, next *taskUsage) {
	last := u.byUID[uid]
	if last == nil && next == nil {
		return
	}
	if last != nil {
		u.cores, u.bytes = u.cores-last.cores, u.bytes-last.bytes
	}
	if next != nil {
		u.cores, u.bytes = u.cores+next.cores, u.bytes+next.bytes
		u.byUID[uid] = next
	} else {
		delete(u.byUID, uid)
	}
	if len(u.byUID) == 0 {
		u.cores, u.bytes = 0, 0 // remove rounding errors
	}
	u.m.usedCores.Set(u.cores)
	u.m.usedMemory.Set(u.bytes)
}

// isRunningOn reports whether an attempt is running on a robot.
func isRunningOn(t *robotv1.Task, robot string, attempt int32) bool {
	return t != nil && lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning && t.Status.Attempt == attempt && t.CurrentRobot() == robot
}

// recordUsages records the usage in a robot's heartbeat.
func (g *Gateway) recordUsages(robotID string, usage []wire.TaskUsage) {
	for _, s := range usage {
		uid := types.UID(s.UID)
		if !isRunningOn(g.objects.task(uid), robotID, s.Attempt) || !g.usage.recordUsage(g.now(), s) {
			continue
		}
		r := report{robot: robotID, uid: uid, attempt: s.Attempt, usageOnly: true, Status: wire.Status{Resources: &s.ResourceUsage}}
		if !g.reports.addReport(r) {
			g.m.countDropped(wire.KindHeartbeat, dropQueueFull, 1)
		}
	}
}

// applyUsage is applyReport for usage in a heartbeat, which changes no state.
func applyUsage(t *robotv1.Task, r report) reportOutcome {
	if !isRunningOn(t, r.robot, r.attempt) {
		return reportOutcome{drop: dropNothingNew}
	}
	next := t.Status.DeepCopy()
	next.Resources = resourceUse(r.Resources)
	if t.Status.Resources != nil && *next.Resources == *t.Status.Resources {
		return reportOutcome{drop: dropNothingNew}
	}
	return reportOutcome{status: next}
}

func resourceUse(u *wire.ResourceUsage) *robotv1.ResourceUse {
	return &robotv1.ResourceUse{
		CPUPercent: u.CPUPercent, MemoryBytes: toInt64(u.MemoryBytes), CPUSeconds: u.CPUSeconds, MemoryPeakBytes: toInt64(u.MemoryPeakBytes),
	}
}
