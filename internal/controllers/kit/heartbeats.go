package kit

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Heartbeats measures for how long robots have been silent by the HeartbeatSlices that the server
// writes, as this manager has observed them (docs/explanation/adr/0019-heartbeats-in-slices.md). No
// wall clock takes part in it. A nil *Heartbeats knows no slices.
type Heartbeats struct {
	live   client.Reader
	uptime func() time.Duration
	times  Sightings[types.UID, time.Time]
	// missing observes whether the entry of a robot is missing.
	missing Sightings[types.UID, bool]

	mu        sync.Mutex
	isWatched bool
	slices    map[types.NamespacedName]*observedSlice
}

// observedSlice is the newest version of a slice that was observed, by the watch or past it.
type observedSlice struct {
	version uint64
	object  *v1alpha1.HeartbeatSlice // nil: none was observed, or it was deleted
	// goneSince is the uptime at which it was first known not to exist, if isGone.
	goneSince time.Duration
	isGone    bool
	readAt    time.Duration // uptime before the last read past the cache, if wasRead
	wasRead   bool
}

// SliceContact is when a robot was last in contact, by its slice.
type SliceContact struct {
	// Silence is the time since the robot's entry changed, or since it is missing.
	Silence time.Duration
	// IsFirst reports whether this manager has seen no other entry, so that the silence may be longer.
	IsFirst bool
	// HasEntry is false if the slice or the robot's entry is missing.
	HasEntry bool
	// Unacknowledged is the time since the last moment at which the robot can have sent a heartbeat
	// that is acknowledged. It is negative while the server may acknowledge more of them, and zero
	// without an entry.
	Unacknowledged time.Duration
}

// NewHeartbeats returns Heartbeats that count with a clock like uptime.OfProcess, and that read past
// the cache from live.
func NewHeartbeats(live client.Reader, uptime func() time.Duration) *Heartbeats {
	return &Heartbeats{
		live: live, uptime: uptime,
		times:   Sightings[types.UID, time.Time]{Uptime: uptime},
		missing: Sightings[types.UID, bool]{Uptime: uptime},
		slices:  map[types.NamespacedName]*observedSlice{},
	}
}

// Watch observes each change of a slice when it happens, and not only when a decision needs it. Each
// controller that shares h calls it.
func (h *Heartbeats) Watch(mgr ctrl.Manager) error {
	if h == nil || h.isWatched {
		return nil
	}
	h.isWatched = true
	return ObserveObjects(mgr, &v1alpha1.HeartbeatSlice{}, h.ObserveSlice, h.ObserveDeletion)
}

// ObserveSlice observes a version of a slice. An older one than the last has no effect: the watch may
// be behind a read past the cache.
func (h *Heartbeats) ObserveSlice(s *v1alpha1.HeartbeatSlice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.sliceLocked(client.ObjectKeyFromObject(s))
	version := versionOf(s)
	if version < last.version {
		return
	}
	last.version, last.object, last.isGone = version, s, false
	for i := range s.Heartbeats {
		h.times.Observe(s.Heartbeats[i].UID, s.Heartbeats[i].Time.UTC())
	}
}

// ObserveDeletion observes that a slice was deleted. S is its last version.
func (h *Heartbeats) ObserveDeletion(s *v1alpha1.HeartbeatSlice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.sliceLocked(client.ObjectKeyFromObject(s)); last.object != nil && last.object.UID == s.UID {
		h.markGoneLocked(last)
	}
}

// markGoneLocked records that a slice does not exist. A watch that is behind must not bring back the
// version that was observed: any other of the slice, and of one created again, has a higher number.
func (h *Heartbeats) markGoneLocked(s *observedSlice) {
	if !s.isGone {
		s.version++
		s.object, s.isGone, s.goneSince = nil, true, h.uptime()
	}
}

func (h *Heartbeats) sliceLocked(k types.NamespacedName) *observedSlice {
	if h.slices[k] == nil {
		h.slices[k] = &observedSlice{}
	}
	return h.slices[k]
}

// ObserveRobot returns the contact of a robot by its slice. Ok is false if its status names none:
// then the server writes all heartbeats to the status.
func (h *Heartbeats) ObserveRobot(r *v1alpha1.Robot) (c SliceContact, ok bool) {
	if h == nil || r.Status.HeartbeatSlice == "" {
		return c, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	slice := h.sliceLocked(sliceKeyOf(r))
	entry := slice.object.FindHeartbeat(r)
	missingFor, _ := h.missing.Observe(r.UID, entry == nil)
	if slice.isGone { // it may have had an entry that the watch has never delivered
		missingFor = min(missingFor, h.uptime()-slice.goneSince)
	}
	if entry == nil {
		return SliceContact{Silence: missingFor, IsFirst: true}, true
	}
	c.HasEntry = true
	c.Silence, c.IsFirst = h.times.Observe(r.UID, entry.Time.UTC())
	c.Unacknowledged = c.Silence - slice.object.AcknowledgmentPeriod.Duration
	return c, true
}

// LastHeartbeat returns when the server last received a message of a robot, by the server's clock: the later of the
// times in its status and in its slice, as far as this manager has observed it. Zero if there was no message.
func (h *Heartbeats) LastHeartbeat(r *v1alpha1.Robot) time.Time {
	var slice *v1alpha1.HeartbeatSlice
	if h != nil && r.Status.HeartbeatSlice != "" {
		h.mu.Lock()
		slice = h.sliceLocked(sliceKeyOf(r)).object
		h.mu.Unlock()
	}
	if at := r.LastHeartbeat(slice); at != nil {
		return at.Time
	}
	return time.Time{}
}

// Refresh reads the slice of a robot past the cache, unless it was read within maxAge. A robot must
// not look lost because a watch is behind. It does nothing for a robot whose status names no slice.
func (h *Heartbeats) Refresh(ctx context.Context, r *v1alpha1.Robot, maxAge time.Duration) error {
	if h == nil || r == nil || r.Status.HeartbeatSlice == "" {
		return nil
	}
	k, now := sliceKeyOf(r), h.uptime()
	if h.wasReadWithin(k, now, maxAge) {
		return nil
	}
	var s v1alpha1.HeartbeatSlice
	err := h.live.Get(ctx, k, &s)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get heartbeat slice %s: %w", k, err)
	}
	if err == nil {
		h.ObserveSlice(&s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	read := h.sliceLocked(k)
	read.readAt, read.wasRead = now, true
	if err != nil {
		h.markGoneLocked(read)
	}
	return nil
}

func (h *Heartbeats) wasReadWithin(k types.NamespacedName, now, maxAge time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sliceLocked(k)
	return s.wasRead && now-s.readAt < maxAge
}

func sliceKeyOf(r *v1alpha1.Robot) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Status.HeartbeatSlice}
}

// versionOf reads the resource version of a slice as a number, as Kubernetes documents since 1.35.
func versionOf(s *v1alpha1.HeartbeatSlice) uint64 {
	n, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
