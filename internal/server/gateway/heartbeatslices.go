package gateway

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// heartbeatSlices assigns robots to HeartbeatSlices, and decides when to write what to them
// (docs/explanation/adr/0019-heartbeats-in-slices.md). A robot stays in its slice, also after a
// restart of the server, until it is deleted. It has no access to the API server.
type heartbeatSlices struct {
	offlineAfter time.Duration
	uptime       func() time.Duration
	contactOf    func(id string) robotContact
	robotOf      func(id string) *robotv1.Robot

	mu      sync.Mutex // locked before robotStates.mu and objectIndex.mu
	byKey   map[types.NamespacedName]*heartbeatSlice
	ofRobot map[string]*heartbeatSlice // by robot ID
	// hasRobots is set when the index contains all Robots.
	hasRobots bool
}

// heartbeatSlice is a slice that is stored, or is to be created.
type heartbeatSlice struct {
	key     types.NamespacedName
	stored  *robotv1.HeartbeatSlice // the last known version; nil: there is none
	entries map[string]*sliceEntry  // by robot ID
	period  time.Duration           // acknowledgmentPeriod of the last known version, also if it was deleted
	// writtenAt is the uptime at the last write or check, and nextAt that of the next one.
	writtenAt, nextAt time.Duration
}

// sliceEntry is a robot in a slice.
type sliceEntry struct {
	uid      types.UID
	time     time.Time // in the last known version of the slice; zero: the robot is not in it
	contacts uint64    // robotContact.count of the last write by this server
	grant    ackGrant
}

// robotContact is when a robot was last seen.
type robotContact struct {
	lastSeen time.Time // with the precision of the API; zero: not by this server
	// count of the messages. Unlike the time, it never repeats.
	count uint64
	// isConnected is false after a last will or a disconnect.
	isConnected bool
}

// sliceWrite is a write of a slice.
type sliceWrite struct {
	key    types.NamespacedName
	object *robotv1.HeartbeatSlice // to create if it has no resource version, else to update
	// deletes: the slice has no robots left.
	deletes bool
	changed map[string]sliceEntry // the entries whose time changes, by robot ID
}

func newHeartbeatSlices(offlineAfter time.Duration, uptime func() time.Duration, robots *robotStates, objects *objectIndex) *heartbeatSlices {
	return &heartbeatSlices{
		offlineAfter: offlineAfter, uptime: uptime, contactOf: robots.contactOf, robotOf: objects.robot,
		byKey: map[types.NamespacedName]*heartbeatSlice{}, ofRobot: map[string]*heartbeatSlice{},
	}
}

// sliceName returns the name of a namespace's slice. Names are derived, so that two servers cannot
// create two slices for the same robots.
func sliceName(number int) string { return fmt.Sprintf("heartbeats-%d", number) }

// slicePeriod returns the time between two writes of a slice: a tenth to a ninth of offlineAfter, 30
// to 33 s by default, by its name, so that slices are not written together.
func slicePeriod(k types.NamespacedName, offlineAfter time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.String()))
	return offlineAfter/10 + offlineAfter/90*time.Duration(h.Sum32()%1024)/1024
}

// minSliceGap returns the least time between two writes of a slice for heartbeats that cannot be
// acknowledged yet: 2 s by default.
func minSliceGap(offlineAfter time.Duration) time.Duration { return offlineAfter / 150 }

// coverageOf returns the name of a robot's slice, or "", and whether heartbeats that have been
// received by now may be acknowledged.
func (s *heartbeatSlices) coverageOf(id string, uptime time.Duration) (name string, isCovered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.ofRobot[id]
	if in == nil {
		return "", false
	}
	e := in.entries[id]
	return in.key.Name, e.grant.covers(e.time, uptime)
}

// assign puts a robot into a slice of its namespace, unless it is in one.
func (s *heartbeatSlices) assign(r *robotv1.Robot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.ofRobot[r.Name]; in != nil {
		if in.key.Namespace == r.Namespace && in.entries[r.Name].uid == r.UID {
			return
		}
		s.releaseLocked(r.Name)
	}
	s.addLocked(s.sliceWithRoomLocked(r.Namespace), r.Name, &sliceEntry{uid: r.UID})
}

func (s *heartbeatSlices) addLocked(to *heartbeatSlice, id string, e *sliceEntry) {
	to.entries[id], s.ofRobot[id] = e, to
}

// sliceWithRoomLocked returns the first slice of the namespace that is not full.
func (s *heartbeatSlices) sliceWithRoomLocked(namespace string) *heartbeatSlice {
	for number := 0; ; number++ {
		in := s.sliceLocked(types.NamespacedName{Namespace: namespace, Name: sliceName(number)})
		if len(in.entries) < robotv1.MaxSliceRobots {
			return in
		}
	}
}

func (s *heartbeatSlices) sliceLocked(k types.NamespacedName) *heartbeatSlice {
	in := s.byKey[k]
	if in == nil {
		in = &heartbeatSlice{key: k, entries: map[string]*sliceEntry{}}
		in.writtenAt = s.uptime() - slicePeriod(k, s.offlineAfter)
		s.byKey[k] = in
	}
	return in
}

// release frees the entry of a Robot that was deleted. The next write of the slice removes it.
func (s *heartbeatSlices) release(r *robotv1.Robot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.ofRobot[r.Name]; in != nil && in.entries[r.Name].uid == r.UID {
		s.releaseLocked(r.Name)
	}
}

func (s *heartbeatSlices) releaseLocked(id string) {
	if in := s.ofRobot[id]; in != nil {
		delete(in.entries, id)
		delete(s.ofRobot, id)
	}
}

// releaseUnknown frees the entries of robots that were deleted while no server was watching. It is
// called when the index contains all Robots.
func (s *heartbeatSlices) releaseUnknown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hasRobots = true
	for id, in := range s.ofRobot {
		if r := s.robotOf(id); r == nil || r.UID != in.entries[id].uid || r.Namespace != in.key.Namespace {
			s.releaseLocked(id)
		}
	}
}

// store records a version of a slice that was read or written. Robots in it that are in no slice yet
// are assigned to it.
func (s *heartbeatSlices) store(o *robotv1.HeartbeatSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.sliceLocked(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	if in.stored != nil && versionOf(in.stored.ResourceVersion) >= versionOf(o.ResourceVersion) {
		return
	}
	in.stored, in.period = o, o.AcknowledgmentPeriod.Duration
	for _, h := range o.Heartbeats {
		if s.ofRobot[h.Robot] == nil && len(in.entries) < robotv1.MaxSliceRobots && s.mayAssign(h) {
			s.addLocked(in, h.Robot, &sliceEntry{uid: h.UID})
		}
		if e := in.entries[h.Robot]; e != nil && e.uid == h.UID {
			e.time = h.Time.Time
		}
	}
}

// mayAssign reports whether the robot of an entry exists. Before the first list of robots it may.
func (s *heartbeatSlices) mayAssign(h robotv1.RobotHeartbeat) bool {
	r := s.robotOf(h.Robot)
	return !s.hasRobots || r != nil && r.UID == h.UID
}

// remove records that a slice was deleted. If it has robots, it is created again.
func (s *heartbeatSlices) remove(o *robotv1.HeartbeatSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.byKey[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}]
	if in == nil || in.stored == nil || in.stored.UID != o.UID || versionOf(in.stored.ResourceVersion) > versionOf(o.ResourceVersion) {
		return
	}
	in.stored, in.nextAt = nil, 0
	for _, e := range in.entries {
		e.grant = ackGrant{}
	}
	if len(in.entries) == 0 {
		delete(s.byKey, in.key)
	}
}

// due returns the slices whose period is over.
func (s *heartbeatSlices) due() (keys []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.uptime()
	for k, in := range s.byKey {
		if now >= in.nextAt {
			keys = append(keys, k)
			in.nextAt = now + slicePeriod(k, s.offlineAfter) // unless its write decides otherwise
		}
	}
	return keys
}

// urgentWrite returns the slice of a robot, and after what time it can be written for a heartbeat
// that cannot be acknowledged before.
func (s *heartbeatSlices) urgentWrite(id string) (k types.NamespacedName, after time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.ofRobot[id]
	if in == nil {
		return k, 0, false
	}
	return in.key, max(0, in.writtenAt+minSliceGap(s.offlineAfter)-s.uptime()), true
}

// planWrite returns what to write to a slice, or nil if nothing changes. It includes every robot
// that has sent a message since the last write.
func (s *heartbeatSlices) planWrite(k types.NamespacedName) *sliceWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.byKey[k]
	if in == nil {
		return nil
	}
	now := s.uptime() // before the write: the grants count from here
	in.writtenAt, in.nextAt = now, now+slicePeriod(k, s.offlineAfter)
	if len(in.entries) == 0 {
		if in.stored == nil {
			delete(s.byKey, k)
			return nil
		}
		return &sliceWrite{key: k, object: in.stored, deletes: true}
	}
	w := &sliceWrite{key: k, changed: map[string]sliceEntry{}}
	var all []robotv1.RobotHeartbeat
	for _, id := range slices.Sorted(maps.Keys(in.entries)) {
		e := *in.entries[id]
		if s.advance(id, &e, now) {
			w.changed[id] = e
		}
		if !e.time.IsZero() {
			all = append(all, robotv1.RobotHeartbeat{Robot: id, UID: e.uid, Time: metav1.MicroTime{Time: e.time}})
		}
	}
	if w.object = in.nextObject(all, in.nextPeriod(grantPeriod(s.offlineAfter))); w.object == nil {
		return nil
	}
	return w
}

// advance moves the time of an entry if the robot has sent a message since, and reports whether it
// did. Unless the last grant still holds, the time differs even if the clock was set back, so that
// the manager counts again from then.
func (s *heartbeatSlices) advance(id string, e *sliceEntry, uptime time.Duration) bool {
	c := s.contactOf(id)
	next := c.lastSeen
	switch {
	case c.count != e.contacts && c.isConnected && !c.lastSeen.IsZero():
		if next.Equal(e.time) {
			next = next.Add(time.Microsecond)
		}
	case e.time.IsZero():
		// The entry was lost, and the manager waits for it. It may have had a later time, which the
		// manager has not seen, so it must differ from what the manager may have seen.
		if r := s.robotOf(id); r != nil && r.Status.LastHeartbeatTime != nil {
			e.time = r.Status.LastHeartbeatTime.Add(time.Microsecond)
		}
		return false
	default:
		return false
	}
	e.time, e.contacts = next, c.count
	e.grant = ackGrant{time: next, from: uptime, period: grantPeriod(s.offlineAfter)}
	return true
}

// nextPeriod returns the acknowledgmentPeriod to write, given that of this server. A former server may
// have acknowledged heartbeats for a longer one, if --offline-after was lowered: it stays until this
// server has written all entries.
func (in *heartbeatSlice) nextPeriod(own time.Duration) time.Duration {
	for _, e := range in.entries {
		if e.contacts == 0 && !e.time.IsZero() {
			return max(own, in.period)
		}
	}
	return own
}

// nextObject returns the slice with these entries, or nil if it is stored like that or empty.
func (in *heartbeatSlice) nextObject(all []robotv1.RobotHeartbeat, period time.Duration) *robotv1.HeartbeatSlice {
	if in.stored == nil {
		if len(all) == 0 {
			return nil
		}
		return &robotv1.HeartbeatSlice{
			ObjectMeta:           metav1.ObjectMeta{Namespace: in.key.Namespace, Name: in.key.Name},
			AcknowledgmentPeriod: metav1.Duration{Duration: period}, Heartbeats: all,
		}
	}
	isSame := func(a, b robotv1.RobotHeartbeat) bool {
		return a.Robot == b.Robot && a.UID == b.UID && a.Time.Equal(&b.Time)
	}
	if in.stored.AcknowledgmentPeriod.Duration == period && slices.EqualFunc(in.stored.Heartbeats, all, isSame) {
		return nil
	}
	next := *in.stored // shares the metadata with the informer; the client replaces it after a write
	next.ObjectMeta = *in.stored.ObjectMeta.DeepCopy()
	next.AcknowledgmentPeriod, next.Heartbeats = metav1.Duration{Duration: period}, all
	return &next
}

// recordWrite records that a slice was written, with the object that the API server returned, or
// deleted. From now on the heartbeats of the robots with a new time may be acknowledged.
func (s *heartbeatSlices) recordWrite(w *sliceWrite) {
	if w.deletes {
		s.remove(w.object)
		return
	}
	s.store(w.object)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, next := range w.changed {
		in := s.ofRobot[id]
		if in == nil || in.key != w.key || in.entries[id].uid != next.uid {
			continue // released meanwhile
		}
		e := in.entries[id]
		e.contacts, e.grant = next.contacts, next.grant
	}
}
