package bridge

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// useEvery is the least time between two writes for nothing but what a task uses,
// and from its start to the first: of 10,000 tasks it is 17 writes a second at the
// worst, and of tasks that run for less it is none.
const useEvery = 10 * time.Minute

// uses is what live tasks were last said to use. It lives in memory only: a server
// that has forgotten it hears it again within useEvery.
type uses struct {
	m *metrics

	mu    sync.Mutex
	byUID map[types.UID]*use
	cores float64 // of all together
	bytes float64
}

type use struct {
	attempt      int32
	cores, bytes float64
	// written is when it was last written, or first heard of.
	written time.Time
}

func newUses(m *metrics) *uses { return &uses{m: m, byUID: map[types.UID]*use{}} }

// hear takes in what an attempt uses. It tells whether that is to be written.
func (u *uses) hear(now time.Time, said wire.TaskUse) (due bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	uid, next := types.UID(said.UID), &use{attempt: said.Attempt, cores: said.CPUPercent / 100, bytes: float64(said.MemoryBytes), written: now}
	last := u.byUID[uid]
	if last != nil && last.attempt == said.Attempt {
		if due = now.Sub(last.written) >= useEvery; !due {
			next.written = last.written
		}
	}
	u.put(uid, next)
	return due
}

// forget drops a task that does not run any more.
func (u *uses) forget(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.put(uid, nil)
}

// put replaces what is known of a task, and keeps the sums. Nil: nothing is.
func (u *uses) put(uid types.UID, next *use) {
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
		u.cores, u.bytes = 0, 0 // what rounding has left
	}
	u.m.usedCores.Set(u.cores)
	u.m.usedMemory.Set(u.bytes)
}

// runsOn tells whether an attempt runs on a robot.
func runsOn(t *robotv1.Task, robot string, attempt int32) bool {
	return t != nil && lifecycle.TaskState(t.Status.State) == lifecycle.TaskRunning && t.Status.Attempt == attempt && t.RobotOfAttempt() == robot
}

// hearUses takes in what the tasks of a robot use.
func (b *Bridge) hearUses(robotID string, said []wire.TaskUse) {
	for _, s := range said {
		uid := types.UID(s.UID)
		if !runsOn(b.view.task(uid), robotID, s.Attempt) || !b.uses.hear(b.now(), s) {
			continue
		}
		r := report{robot: robotID, uid: uid, attempt: s.Attempt, useOnly: true, Status: wire.Status{Resources: &s.ResourceUse}}
		if !b.reports.add(r) {
			b.drop(wire.KindHeartbeat, "queue is full")
		}
	}
}

// judgeUse is judge for what comes with a heartbeat, which moves nothing.
func judgeUse(t *robotv1.Task, r report) verdict {
	if !runsOn(t, r.robot, r.attempt) {
		return verdict{drop: dropNothingNew}
	}
	next := t.Status.DeepCopy()
	next.Resources = resourceUse(r.Resources)
	if t.Status.Resources != nil && *next.Resources == *t.Status.Resources {
		return verdict{drop: dropNothingNew}
	}
	return verdict{status: next}
}

func resourceUse(u *wire.ResourceUse) *robotv1.ResourceUse {
	return &robotv1.ResourceUse{
		CPUPercent: u.CPUPercent, MemoryBytes: signed(u.MemoryBytes), CPUSeconds: u.CPUSeconds, MemoryPeakBytes: signed(u.MemoryPeakBytes),
	}
}
