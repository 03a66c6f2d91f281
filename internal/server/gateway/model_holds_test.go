package gateway

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The rules of holds that a model may break.
const (
	obeysInterruptions brokenRule = "a held robot stops what it may refuse to stop"
	unlistsInterrupted brokenRule = "the task list lacks tasks that their robot may refuse to stop"
)

// changeHold begins or ends a hold of the whole robot. The server may learn that at once, or when the robot
// connects again.
func (m *model) changeHold(r *modelRobot) {
	r.isHeld = r.refuses && !r.isHeld
	m.record("%s is held: %t", r.id, r.isHeld)
	if r.up && rapid.Bool().Draw(m.t, "the server receives that") {
		m.server.answerRegistration(r.id)
	}
}

// localState returns what the robot registers.
func (r *modelRobot) localState() *wire.LocalState {
	if !r.isHeld {
		return nil
	}
	return &wire.LocalState{Holds: []wire.Hold{{ID: "hold", By: "alice", Reason: "a visit"}}}
}

// mayRefuse reports whether the robot refuses to stop a live attempt.
func (r *modelRobot) mayRefuse(live *liveAttempt, d wire.Dispatch) bool {
	return live != nil && d.Interruption != nil && r.isHeld && live.stopReason == "" && live.attempt == d.Attempt && r.m.broken != obeysInterruptions
}

// reportRefusal reports that an attempt goes on although the robot was asked to interrupt it.
func (r *modelRobot) reportRefusal(uid string) {
	r.reportRunning(uid)
	s := r.unacked[attemptID{uid, r.live[uid].attempt}]
	s.Refused = wire.RefusedHeld
	r.queueBuilt(r.buildReport(uid, s.Attempt, s))
}

// interruptTask requests an eviction of the current attempt of a task that can wait.
func (m *model) interruptTask(name string) {
	t := m.tasks[name]
	if t == nil || t.Spec.EvictAttempt == t.Status.Attempt {
		return
	}
	next := t.DeepCopy()
	next.Spec.EvictAttempt, next.Spec.EvictionWaitsFor = next.Status.Attempt, robotv1.EvictionWaitsForWindows
	m.writeTask(t, next)
}

// evictionOf returns why a Task must leave its robot, and what that waits for.
func (m *model) evictionOf(t *robotv1.Task, at string) (reason, waitsFor string) {
	if t.Spec.EvictionWaitsFor == "" {
		return m.evictionReason(t, at), ""
	}
	unmarked := *t
	unmarked.Spec.EvictAttempt = 0
	if reason = m.evictionReason(&unmarked, at); reason != "" {
		return reason, ""
	}
	if reason = m.evictionReason(t, at); reason == "" {
		return "", ""
	}
	return reason, t.Spec.EvictionWaitsFor
}

// checkHold fails the test if a held robot is about to stop an attempt which nothing but an interruption may
// have ended.
func (m *model) checkHold(r *modelRobot, uid string) {
	t, live := m.taskByUID(types.UID(uid)), r.live[uid]
	if !r.isHeld || t == nil || t.Status.Attempt != live.attempt || live.stopReason != "" || m.mayStop[attemptID{uid, live.attempt}] {
		return
	}
	m.failWithHistory("%s is held, and stops attempt %d of %s", r.id, live.attempt, uid)
}

// TestHeldTaskIsNotInterrupted runs random interleavings of all events around held robots, whose tasks are often
// to be interrupted: nothing runs twice, nothing is stuck, and no interruption stops a held task.
func TestHeldTaskIsNotInterrupted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runHolds(t, "") })
}

func TestHolds_ModelFindsBrokenRules(t *testing.T) {
	expectViolations(t, func(t *rapid.T, rule brokenRule) bool {
		return findsViolation(func() { runHolds(t, rule) })
	}, obeysInterruptions, unlistsInterrupted)
}

func runHolds(t *rapid.T, broken brokenRule) {
	m := newModel(t)
	m.broken = broken
	for range rapid.IntRange(20, 100).Draw(t, "events") {
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			m.withOneRobot(m.changeHold)
		case 1:
			m.withOneTask(m.interruptTask)
		case 2:
			m.settle()
		default:
			m.runEvent()
		}
		m.checkInvariants()
	}
	if broken == "" {
		m.settleWithoutFailures()
	}
}
