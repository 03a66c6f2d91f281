package gateway

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

const (
	acksBeyondSlice      brokenRule = "the server acknowledges what the slice does not cover"
	prolongsGrant        brokenRule = "the server prolongs a period without a change of the time"
	forgetsPeriod        brokenRule = "the manager does not add the period in which heartbeats are acknowledged"
	goesOfflineFromCache brokenRule = "the manager marks a robot Offline by a slice in its cache"
	ignoresSlices        brokenRule = "the manager counts by the status although it names a slice"
)

// TestModelFindsBrokenRules breaks each rule in turn, and expects a violation of the invariants.
func TestModelFindsBrokenRules(t *testing.T) {
	expectViolations(t, runHeartbeats, acksBeyondSlice, prolongsGrant, forgetsPeriod, goesOfflineFromCache, ignoresSlices)
}

// runHeartbeats runs a task that must not run twice, while robots disconnect, the API server and the
// server stop, and the manager's cache lags. It reports whether a model with a broken rule violates an
// invariant.
func runHeartbeats(t *rapid.T, rule brokenRule) (violates bool) {
	m := newModel(t)
	m.broken = rule
	m.job.Spec.Disconnect = &robotv1.Disconnect{
		LostAfter: robotv1.NewDuration(time.Minute), StopOnRobotAfter: robotv1.NewDuration(10 * time.Minute), Reconcile: robotv1.ReconcileKeepOriginal,
	}
	m.job.Spec.TaskGroups[0].InitTasks, m.job.Spec.TaskGroups[0].RestartPolicy = nil, nil
	m.job.Spec.TaskGroups[0].Tasks = []robotv1.TaskDefinition{{Name: "a", Driver: "exec"}}
	return findsViolation(func() {
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			m.runRound()
		}
	})
}

// runRound disconnects a robot after a while in which the API server may be down, or the manager may
// see no slices. A server that fails then has not written what it has acknowledged.
func (m *model) runRound() {
	m.passHalfMinutes("before", 1, 3)
	if rapid.IntRange(0, 3).Draw(m.t, "delete a slice") == 0 {
		m.deleteSlice()
	}
	m.api, m.cache.lags = rapid.Bool().Draw(m.t, "the API server is up"), rapid.Bool().Draw(m.t, "the cache lags")
	m.passHalfMinutes("outage", 0, 1, 3, 4, 12)
	m.withOneRobot(m.disconnect)
	fails := rapid.Bool().Draw(m.t, "the server fails")
	if fails {
		m.restartServer()
	}
	if m.api = m.api || rapid.Bool().Draw(m.t, "the API server is up again"); m.api && fails {
		m.restartServer()
	}
	m.passHalfMinutes("silence", 2, 11, 20, 21, 22, 23, 24, 40)
	m.cache.lags = m.cache.lags && rapid.Bool().Draw(m.t, "the cache still lags")
	if m.api = true; !m.server.up {
		m.restartServer()
	}
	m.withOneRobot(m.connect)
}

func (m *model) passHalfMinutes(name string, numbers ...int) {
	for range rapid.SampledFrom(numbers).Draw(m.t, name) {
		m.passHalfMinute()
	}
}

// passHalfMinute lets all actors run, except for what the cache of slices withholds.
func (m *model) passHalfMinute() {
	m.cache.holdsSlices = m.cache.lags
	m.settle()
	m.checkInvariants()
	m.passTime(30 * time.Second)
}

// deleteSlice deletes a slice once, as an administrator can. Of two deletions, a cache that lags would
// not see what was between.
func (m *model) deleteSlice() {
	for _, s := range m.slices {
		if m.hasDeletedSlice {
			return
		}
		m.hasDeletedSlice = true
		delete(m.slices, s.Name)
		m.record("slice %s is deleted", s.Name)
		m.server.slices.remove(s)
		m.cache.add("slice", func() { m.sliceView.ObserveDeletion(s) })
		return
	}
}

// Get reads a slice from the API server of the model.
func (m *model) Get(_ context.Context, k client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s := m.slices[k.Name]
	if s == nil {
		return apierrors.NewNotFound(robotv1.GroupVersion.WithResource("heartbeatslices").GroupResource(), k.Name)
	}
	m.seenByManager(s).DeepCopyInto(into.(*robotv1.HeartbeatSlice))
	return nil
}

// seenByManager returns what the manager takes from a slice.
func (m *model) seenByManager(s *robotv1.HeartbeatSlice) *robotv1.HeartbeatSlice {
	if m.broken == forgetsPeriod {
		s = s.DeepCopy()
		s.AcknowledgmentPeriod.Duration = 0
	}
	return s
}

// List is never called.
func (m *model) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// storeSlice stores a slice that the server writes.
func (m *model) storeSlice(s *robotv1.HeartbeatSlice) {
	if s.ResourceVersion == "" {
		s.UID = types.UID("uid-" + m.nextVersion())
	}
	s.ResourceVersion = m.nextVersion()
	for _, h := range s.Heartbeats {
		m.recordStoredHeartbeat(h.Robot, h.Time.Time)
	}
	stored := s.DeepCopy()
	m.slices[s.Name] = stored
	m.cache.add("slice", func() { m.sliceView.ObserveSlice(m.seenByManager(stored)) })
	if !m.cache.lags {
		m.cache.deliver("slice", len(m.cache.undelivered["slice"]))
	}
}

// recordStoredHeartbeat records the time of a heartbeat in a slice or a status.
func (m *model) recordStoredHeartbeat(id string, at time.Time) {
	if at.After(m.stored[id].time) {
		m.stored[id] = storedHeartbeat{at, m.now}
	}
}

// storedHeartbeat is the last heartbeat of a robot that was stored, and when.
type storedHeartbeat struct{ time, storedAt time.Time }

// writeSlices writes the slices that are due, or all of them.
func (s *modelServer) writeSlices(all bool) {
	if s.m.broken == prolongsGrant {
		for _, in := range s.slices.byKey {
			for _, e := range in.entries {
				e.grant.from = s.m.uptime()
			}
		}
	}
	keys := s.slices.due()
	if all {
		keys = nil
		for k := range s.slices.byKey {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	for _, k := range keys {
		if s.up && s.m.api {
			s.writeSlice(k)
		}
	}
}

func (s *modelServer) writeSlice(k types.NamespacedName) {
	w := s.slices.planWrite(k)
	switch {
	case w == nil:
	case w.deletes:
		delete(s.m.slices, k.Name)
		s.slices.recordWrite(w)
	default:
		s.m.storeSlice(w.object)
		s.slices.recordWrite(w)
	}
	for _, id := range s.m.robotIDs() {
		s.ackHeartbeat(id)
	}
}

// retryWrites writes the statuses that could not be written before.
func (s *modelServer) retryWrites() {
	for _, id := range s.m.robotIDs() {
		if s.up && s.m.api && s.unwritten[id] {
			s.sync(id)
		}
	}
}

// stateOf returns the state of a robot, with what its slice covers.
func (s *modelServer) stateOf(id string) robotState {
	w := s.states.stateOf(id)
	w.slice, w.isCovered = s.slices.coverageOf(id, w.uptime)
	return w
}

// ackHeartbeat acknowledges the robot's last heartbeat if its slice and status cover it.
func (s *modelServer) ackHeartbeat(id string) {
	w := s.stateOf(id)
	if !w.awaitsAck() || !w.coversHeartbeat(s.m.robots[id].Status) && s.m.broken != acksBeyondSlice {
		return
	}
	s.states.updateState(id, true, func(now *robotState) { now.ackedSeq = w.heartbeatSeq })
	s.m.sendToRobot(id, s.heartbeats[id])
}

// refreshSlices reads the slices past the cache.
func (m *model) refreshSlices(ids ...string) {
	for _, id := range ids {
		if err := m.sliceView.Refresh(context.Background(), m.robots[id], 0); err != nil {
			m.t.Fatal(err)
		}
	}
}

// planTask runs the planner of the task controller. The caller writes its result with applyDraft, at
// once or later. Before it relies on the self-stop of robots, it reads their slices past the cache.
func (m *model) planTask(name string) draft {
	d := m.planTaskFromCache(name)
	if d.actions.ReliesOnSelfStop {
		m.refreshSlices(m.robotIDs()...)
		return m.planTaskFromCache(name)
	}
	return d
}

// silenceOf returns the silence of a robot, as the robot controller observes it.
func (m *model) silenceOf(id string) time.Duration {
	silence := m.observeHeartbeat(id)
	if slice, ok := m.sliceView.ObserveRobot(m.robots[id]); ok && m.broken != ignoresSlices {
		return min(silence, slice.Silence)
	}
	return silence
}

// observeSilence is silenceOf, from a slice that is read past the cache if the robot may be offline.
func (m *model) observeSilence(id string) time.Duration {
	silence := m.silenceOf(id)
	if silence < m.offlineAfter || m.broken == goesOfflineFromCache {
		return silence
	}
	m.refreshSlices(id)
	return m.silenceOf(id)
}

// checkOffline fails the test if a robot goes Offline although a heartbeat of it was stored since
// offlineAfter, unless the server marks it.
func (m *model) checkOffline(id string, was string, actions robot.Actions) {
	if actions.NewPhase != lifecycle.RobotOffline || was == string(lifecycle.RobotOffline) || m.isMarkedUnresponsive(id) {
		return
	}
	if since := m.now.Sub(m.stored[id].storedAt); since < m.offlineAfter {
		m.failWithHistory("%s goes Offline %s after its last heartbeat was stored", id, since)
	}
}

// isMarkedUnresponsive reports whether the server has marked a robot.
func (m *model) isMarkedUnresponsive(id string) bool {
	for _, c := range m.robots[id].Status.Conditions {
		if c.Type == robotv1.ConditionConnected && c.Reason == robotv1.ReasonUnresponsive {
			return true
		}
	}
	return false
}

// contactOf returns for how long a robot is out of contact, as the task controller observes it.
func (m *model) contactOf(k types.NamespacedName, r *robotv1.Robot) task.Contact {
	if m.broken == ignoresSlices && r != nil {
		r = r.DeepCopy()
		r.Status.HeartbeatSlice = ""
	}
	return m.contacts.ObserveRobot(k, r)
}
