package gateway

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// sliceSystem is the slices of a server with its robots, and an API server that stores what it writes.
type sliceSystem struct {
	*testing.T
	*heartbeatSlices
	states  *robotStates
	objects *objectIndex
	now     time.Time // of the wall clock
	up      time.Duration
	stored  map[types.NamespacedName]*robotv1.HeartbeatSlice
	version int
}

func newSliceSystem(t *testing.T) *sliceSystem {
	s := &sliceSystem{T: t, now: clock, up: 24 * time.Hour, stored: map[types.NamespacedName]*robotv1.HeartbeatSlice{}, objects: newObjectIndex()}
	s.restart()
	return s
}

// restart replaces the server.
func (s *sliceSystem) restart() {
	uptime := func() time.Duration { return s.up }
	s.states = newRobotStates(false, uptime)
	s.heartbeatSlices = newHeartbeatSlices(offlineAfter, uptime, s.states, s.objects)
	for _, o := range s.stored {
		s.store(o.DeepCopy())
	}
	s.releaseUnknown()
}

func (s *sliceSystem) pass(d time.Duration) { s.now, s.up = s.now.Add(d), s.up+d }

// add creates robots.
func (s *sliceSystem) add(namespace string, ids ...string) {
	for _, id := range ids {
		r := newRobot(namespace, id, nil, robotState{})
		s.version++
		r.UID, r.ResourceVersion = types.UID("uid-"+id+strconv.Itoa(s.version)), strconv.Itoa(s.version)
		s.objects.putRobot(r)
	}
}

// heartbeat records a heartbeat of robots.
func (s *sliceSystem) heartbeat(ids ...string) {
	for _, id := range ids {
		s.states.updateState(id, true, func(w *robotState) {
			w.recordHeartbeat(s.now, robotv1.ProtocolV2, wire.Heartbeat{Seq: w.heartbeatSeq + 1})
		})
		s.assign(s.objects.robot(id))
	}
}

// write writes a slice, and reports whether there was anything to write.
func (s *sliceSystem) write(k types.NamespacedName) bool {
	w := s.planWrite(k)
	if w == nil {
		return false
	}
	if w.deletes {
		delete(s.stored, k)
	} else {
		s.version++
		w.object.ResourceVersion, w.object.UID = strconv.Itoa(s.version), types.UID("uid-"+k.Name)
		s.stored[k] = w.object.DeepCopy()
	}
	s.recordWrite(w)
	return true
}

func (s *sliceSystem) isCovered(id string) bool {
	_, covered := s.coverageOf(id, s.up)
	return covered
}

// timeOf returns the stored time of a robot.
func (s *sliceSystem) timeOf(id string) time.Time {
	for _, o := range s.stored {
		if h := o.FindHeartbeat(s.objects.robot(id)); h != nil {
			return h.Time.Time
		}
	}
	return time.Time{}
}

func sliceKey(number int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: sliceName(number)}
}

func ids(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%03d", prefix, i))
	}
	return all
}

// One write covers the heartbeats of all robots of a slice for a third of offlineAfter.
func TestHeartbeatSlices_CoverWhatIsWritten(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a")
	if s.isCovered("a") {
		t.Error("covered before the write")
	}
	s.write(sliceKey(0))
	s.pass(offlineAfter / 3)
	s.heartbeat("a", "b")
	if !s.isCovered("a") || s.isCovered("b") {
		t.Errorf("covered at the end of the period: %v, without an entry: %v", s.isCovered("a"), s.isCovered("b"))
	}
	s.pass(time.Microsecond)
	if s.isCovered("a") {
		t.Error("covered after the period")
	}
	s.write(sliceKey(0))
	if !s.isCovered("a") || !s.isCovered("b") || !s.timeOf("a").Equal(s.now.Add(-time.Microsecond)) {
		t.Errorf("after another write: %v, %v, time %s", s.isCovered("a"), s.isCovered("b"), s.timeOf("a"))
	}
	s.pass(time.Minute)
	s.heartbeat("b")
	s.write(sliceKey(0))
	s.pass(offlineAfter/3 - time.Minute + time.Microsecond)
	if s.isCovered("a") || !s.isCovered("b") {
		t.Error("a write prolongs the period of a robot that is silent")
	}
	if s.write(sliceKey(0)) {
		t.Error("it is written although nothing has changed")
	}
}

// A slow write does not prolong the period: the manager may have seen its start.
func TestHeartbeatSlices_CountPeriodFromBeforeTheWrite(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a")
	s.heartbeat("a")
	w := s.planWrite(sliceKey(0))
	s.pass(time.Minute) // the API server is slow
	s.version++
	w.object.ResourceVersion, w.object.UID = strconv.Itoa(s.version), "uid"
	s.recordWrite(w)
	s.pass(offlineAfter/3 - time.Minute)
	if !s.isCovered("a") {
		t.Error("not covered until the end of the period")
	}
	s.pass(time.Microsecond)
	if s.isCovered("a") {
		t.Error("covered after the period since before the write")
	}
}

// The time must differ from the stored one even if the clock was set back to it, so that the manager
// counts again.
func TestHeartbeatSlices_ChangeTimeWhateverTheClock(t *testing.T) {
	for name, step := range map[string]time.Duration{"right": 0, "forward": 24 * time.Hour, "back": -24 * time.Hour, "back to the last heartbeat": -offlineAfter} {
		s := newSliceSystem(t)
		s.add(namespace, "a")
		s.heartbeat("a")
		s.write(sliceKey(0))
		was := s.timeOf("a")
		s.pass(offlineAfter)
		s.now = s.now.Add(step)
		s.heartbeat("a")
		if s.isCovered("a") || !s.write(sliceKey(0)) || s.timeOf("a").Equal(was) || !s.isCovered("a") {
			t.Errorf("%s: time %s after %s", name, s.timeOf("a"), was)
		}
	}
}

// What another program has written is not covered, and is written again.
func TestHeartbeatSlices_CoverNothingOfOthers(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a", "b")
	s.write(sliceKey(0))
	other := s.stored[sliceKey(0)].DeepCopy()
	other.Heartbeats[0].Time.Time = clock.Add(time.Hour)
	s.version++
	other.ResourceVersion = strconv.Itoa(s.version)
	s.store(other)
	if s.isCovered("a") || !s.isCovered("b") {
		t.Errorf("covered: a %v, b %v", s.isCovered("a"), s.isCovered("b"))
	}
	s.restart()
	if s.isCovered("b") {
		t.Error("a restarted server acknowledges what the one before has written")
	}
}

func TestHeartbeatSlices_KeepRobotsInTheirSlices(t *testing.T) {
	s := newSliceSystem(t)
	all := ids("r", 2*robotv1.MaxSliceRobots+1)
	s.add(namespace, all...)
	s.add("other", "x")
	s.heartbeat(all...)
	s.heartbeat("x")
	for number, want := range []int{robotv1.MaxSliceRobots, robotv1.MaxSliceRobots, 1} {
		s.write(sliceKey(number))
		if n := len(s.stored[sliceKey(number)].Heartbeats); n != want {
			t.Errorf("slice %d has %d robots, want %d", number, n, want)
		}
	}
	if name, _ := s.coverageOf("x", s.up); name != sliceName(0) {
		t.Errorf("the robot of another namespace is in %s", name)
	}
	was, _ := s.coverageOf("r750", s.up)
	s.objects.removeRobot(s.objects.robot("r000")) // while no server runs
	s.restart()
	for _, id := range []string{"r750", "r001"} {
		s.heartbeat(id)
	}
	if is, _ := s.coverageOf("r750", s.up); is != was {
		t.Errorf("after a restart it is in %s instead of %s", is, was)
	}
	s.add(namespace, "new")
	s.heartbeat("new")
	if is, _ := s.coverageOf("new", s.up); is != sliceName(0) {
		t.Errorf("the new robot is in %s although there is room in the first", is)
	}
	s.write(sliceKey(0))
	if o := s.stored[sliceKey(0)]; len(o.Heartbeats) != robotv1.MaxSliceRobots || o.FindHeartbeat(s.objects.robot("new")) == nil {
		t.Errorf("%d robots in the slice", len(o.Heartbeats))
	}
}

// A robot that is created again is another one.
func TestHeartbeatSlices_ReleaseDeletedRobots(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a", "b")
	s.write(sliceKey(0))
	first := s.objects.robot("a")
	s.objects.removeRobot(first)
	s.release(first)
	s.add(namespace, "a")
	s.release(first) // its deletion is delivered late
	s.heartbeat("a")
	if s.isCovered("a") {
		t.Error("the new robot is covered by the entry of the deleted one")
	}
	s.write(sliceKey(0))
	if o := s.stored[sliceKey(0)]; len(o.Heartbeats) != 2 || o.FindHeartbeat(first) != nil {
		t.Errorf("%+v", o.Heartbeats)
	}
	for _, id := range []string{"a", "b"} {
		r := s.objects.robot(id)
		s.objects.removeRobot(r)
		s.release(r)
	}
	if !s.write(sliceKey(0)) || len(s.stored) != 0 {
		t.Errorf("the empty slice is not deleted: %v", s.stored)
	}
	if s.write(sliceKey(0)) {
		t.Error("it is deleted twice")
	}
}

// A write that was planned for a deleted robot must not count as one for the robot that was created
// again since.
func TestHeartbeatSlices_RecordNoWriteForRobotCreatedMeanwhile(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a")
	s.heartbeat("a")
	w := s.planWrite(sliceKey(0))
	first := s.objects.robot("a")
	s.objects.removeRobot(first)
	s.release(first)
	s.add(namespace, "a")
	s.assign(s.objects.robot("a"))
	s.version++
	w.object.ResourceVersion, w.object.UID = strconv.Itoa(s.version), "uid"
	s.recordWrite(w)
	if s.isCovered("a") {
		t.Error("covered by the entry of the deleted robot")
	}
	if !s.write(sliceKey(0)) || !s.isCovered("a") || s.timeOf("a").IsZero() {
		t.Error("the heartbeat of the new robot is not written")
	}
}

// A slice that an administrator deletes is created again with all its robots, also those that are
// silent: the manager would otherwise wait for their entries.
func TestHeartbeatSlices_CreateDeletedSliceAgain(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a", "b")
	s.write(sliceKey(0))
	s.remove(s.stored[sliceKey(0)])
	delete(s.stored, sliceKey(0))
	if s.isCovered("a") {
		t.Error("covered by a slice that does not exist")
	}
	if keys := s.due(); len(keys) != 1 {
		t.Errorf("due: %v", keys)
	}
	s.pass(time.Second)
	s.heartbeat("a")
	s.write(sliceKey(0))
	if !s.isCovered("a") || s.isCovered("b") || !s.timeOf("b").Equal(clock) {
		t.Errorf("covered: a %v, b %v; time of b %s", s.isCovered("a"), s.isCovered("b"), s.timeOf("b"))
	}
	s.remove(s.stored[sliceKey(0)])
	delete(s.stored, sliceKey(0))
	r := s.objects.robot("b").DeepCopy()
	r.Status = newKnownRobot("Offline").Status
	r.Status.HeartbeatSlice = sliceName(0)
	s.version++
	r.ResourceVersion = strconv.Itoa(s.version)
	s.objects.putRobot(r)
	s.restart()
	s.assign(r)
	s.write(sliceKey(0))
	if !s.timeOf("b").Equal(clock.Add(time.Microsecond)) {
		t.Errorf("a restarted server writes %s for a silent robot", s.timeOf("b"))
	}
}

// A robot whose connection has ended keeps its time, from which the manager counts.
func TestHeartbeatSlices_KeepTimeOfDisconnectedRobot(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a", "b")
	s.write(sliceKey(0))
	s.pass(time.Minute)
	s.heartbeat("a", "b")
	s.states.updateState("a", true, func(w *robotState) { w.recordPresence(s.now, wire.Presence{}) })
	s.write(sliceKey(0))
	if !s.timeOf("a").Equal(clock) || !s.timeOf("b").Equal(s.now) {
		t.Errorf("a %s, b %s", s.timeOf("a"), s.timeOf("b"))
	}
}

// The self-stop deadline of a silent robot counts from the end of the period in which the former server
// may have acknowledged its heartbeats.
func TestHeartbeatSlices_KeepLongerPeriodOfFormerServer(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a", "b")
	s.write(sliceKey(0))
	expect := func(after string, want time.Duration) {
		t.Helper()
		if got := s.stored[sliceKey(0)].AcknowledgmentPeriod.Duration; got != grantPeriod(want) {
			t.Errorf("%s the period is %s, want %s", after, got, grantPeriod(want))
		}
	}
	s.restart()
	s.offlineAfter = offlineAfter / 5
	s.heartbeat("a")
	s.write(sliceKey(0))
	expect("while b is silent", offlineAfter)
	s.remove(s.stored[sliceKey(0)])
	delete(s.stored, sliceKey(0))
	s.write(sliceKey(0))
	expect("after the slice was created again", offlineAfter)
	s.heartbeat("b")
	s.write(sliceKey(0))
	s.write(sliceKey(0))
	expect("after a write of each entry", s.offlineAfter)
	s.restart()
	s.heartbeat("a")
	s.write(sliceKey(0))
	expect("with a longer one", offlineAfter)
}

// Slices are written every 30 s, sooner only if a heartbeat cannot be acknowledged, and then not more
// often than every 2 s.
func TestHeartbeatSlices_AreWrittenRarely(t *testing.T) {
	s := newSliceSystem(t)
	s.add(namespace, "a", "b")
	s.heartbeat("a")
	if _, after, ok := s.urgentWrite("a"); !ok || after != 0 {
		t.Errorf("the first write waits for %s", after)
	}
	s.write(sliceKey(0))
	s.heartbeat("b")
	if _, after, _ := s.urgentWrite("b"); after != minSliceGap(offlineAfter) {
		t.Errorf("the second write waits for %s", after)
	}
	s.write(sliceKey(0))
	writes := 0
	for range 3600 {
		s.pass(time.Second)
		if s.up%(30*time.Second) == 0 {
			s.heartbeat("a", "b")
			if !s.isCovered("a") {
				t.Fatal("a heartbeat of a steady robot has to wait for a write")
			}
		}
		for _, k := range s.due() {
			if s.write(k) {
				writes++
			}
		}
	}
	if writes < 100 || writes > 120 {
		t.Errorf("%d writes in an hour", writes)
	}
}

// TestHeartbeats_CostFewWrites simulates two hours of robots that send a heartbeat every 30 s, each at a
// time of its own, and counts the writes of slices and statuses. The slices are full, so more robots
// cost as much each: 20,000 cost 3.41.
func TestHeartbeats_CostFewWrites(t *testing.T) {
	const robots, hours = 2 * robotv1.MaxSliceRobots, 2
	s := newSliceSystem(t)
	all := ids("robot-", robots)
	s.add(namespace, all...)
	status := map[string]robotv1.RobotStatus{}
	writes := 0
	for second := range (hours + 1) * 3600 {
		s.pass(time.Second)
		for i := second % 30; i < robots; i += 30 {
			id := all[i]
			s.heartbeat(id)
			if w := s.states.stateOf(id); isHeartbeatDue(status[id], w, statusPeriod(id, offlineAfter, true)) {
				status[id] = *nextRobotStatus(robotv1.RobotStatus{Phase: "Online"}, w)
				writes++
			}
			if k, after, _ := s.urgentWrite(id); !s.isCovered(id) && after == 0 && s.write(k) {
				writes++
			}
		}
		for _, k := range s.due() {
			if s.write(k) {
				writes++
			}
		}
		if second == 3600 { // after the first statuses and slices
			writes = 0
		}
	}
	each := float64(writes) / float64(hours*robots)
	t.Logf("%d robots cost %.2f writes a robot and hour", robots, each)
	if each > 4 {
		t.Errorf("%.2f writes a robot and hour, want 4 at the most", each)
	}
}
