package gateway

import (
	"sync"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// robotState is what a robot last reported about itself. It is in memory only: after a
// restart of the server the next heartbeat restores it.
type robotState struct {
	protocol string // empty: no message since this server started
	// plaintext: its messages come over a connection without TLS.
	plaintext bool
	version   string
	address   string
	device    *wire.DeviceInfo // within limits
	// deviceWrittenAt is when this server last wrote a change of the device.
	deviceWrittenAt time.Time
	labels          map[string]string
	policy          *policy.Policy // of its last registration; nil: none
	token           string         // of a legacy agent's registration
	// lastSeen is when the last message of the robot, other than a last will, was
	// received.
	lastSeen time.Time
	// heartbeatSeq is the number of its last heartbeat. Zero: none that needs an
	// acknowledgement.
	heartbeatSeq uint64
	// ackedSeq is the number of the heartbeat that was acknowledged last.
	ackedSeq uint64
	// registered is when this server last received a registration.
	registered time.Time
	// connectionID is that of its last registration. Empty: its agent sends none.
	connectionID string
	// awaitsResponse: its registration has not been answered.
	awaitsResponse bool
	// disconnectReason is the reason of its condition Connected. Empty: it is connected.
	disconnectReason string
	// unconfirmedWill is when a last will without a connection id was received that may be that
	// of an older connection. Zero: none.
	unconfirmedWill time.Time
	// unresponsive: it sends heartbeats, but answers no dispatch.
	unresponsive bool
	// hasAnswered: it has reported about a task since this server started.
	hasAnswered bool
	// answersDispatches: its agent answers each dispatch that it accepts, as registered.
	answersDispatches bool
	// runsArrays: its agent runs ranges and indexes of arrays, as registered.
	runsArrays bool
	// restartsTasks: its agent restarts tasks, as registered.
	restartsTasks bool
	// refusesInterruptions: its agent does, as registered.
	refusesInterruptions bool
	// updatesItself: its agent acts by orders to update it, as registered.
	updatesItself bool
	// agentUpdate is what its agent has registered about such an order, within limits. Nil: nothing.
	agentUpdate *wire.AgentUpdate
	// sentOrder is the order that was sent to its agent last. Zero: none.
	sentOrder sentAgentOrder
	// local is what people at the robot have decided, as registered and within limits. Nil: nothing.
	local *wire.LocalState
	// sentUnlock is the ID of the maintenance that the robot was last asked to end since it registered,
	// and sentUnlockAt when. Empty: none.
	sentUnlock   string
	sentUnlockAt time.Time
	// prefetches: its agent fetches in advance, as registered; prefetch are its reports, within limits.
	prefetches bool
	prefetch   []wire.PrefetchReport
	// sentPrefetch is the ID of the order that the robot was last sent, and sentPrefetchAt when.
	sentPrefetch   string
	sentPrefetchAt time.Time
	// diskPressure and journalReadOnly are those of its last heartbeat.
	diskPressure, journalReadOnly bool
	// contacts counts the messages that change lastSeen.
	contacts uint64
	// uptime is that of the machine when this copy of the state was made.
	uptime time.Duration
	// slice is the name of the robot's HeartbeatSlice, or "", and isCovered reports whether the slice
	// lets the server acknowledge its heartbeats. Both are set by Gateway.stateOf only.
	slice     string
	isCovered bool
}

const (
	// staleWillWindow is how long after a registration a last will without a connection id
	// may be that of the previous connection: MQTT does not order the two.
	staleWillWindow = 5 * time.Second
	// willConfirmAfter is how long a robot must be silent after an unconfirmed last
	// will. It exceeds the time between two heartbeats.
	willConfirmAfter = 40 * time.Second
	// maxUnknownRobots bounds the robots in memory without an object.
	maxUnknownRobots = 4096
)

// robotStates holds the state of robots that have an object, and of unknown robots whose
// registration is in progress.
type robotStates struct {
	plaintext bool // of new states
	uptime    func() time.Duration

	mu      sync.Mutex
	byID    map[string]*robotState
	unknown map[string]struct{} // the IDs without an object
}

func newRobotStates(plaintext bool, uptime func() time.Duration) *robotStates {
	return &robotStates{plaintext: plaintext, uptime: uptime, byID: map[string]*robotState{}, unknown: map[string]struct{}{}}
}

// stateOf returns a copy of a robot's state, or the zero state.
func (r *robotStates) stateOf(id string) robotState {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := robotState{}
	if known := r.byID[id]; known != nil {
		w = *known
	}
	w.uptime = r.uptime()
	return w
}

// contactOf returns when a robot was last seen, without a copy of its state.
func (r *robotStates) contactOf(id string) robotContact {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[id]
	if w == nil {
		return robotContact{}
	}
	return robotContact{lastSeen: w.storedLastSeen(), count: w.contacts, isConnected: w.disconnectReason == ""}
}

// updateState applies a change to the state of a robot, which is created if necessary.
// It returns false if there are too many unknown robots. Known means that the robot has
// an object.
func (r *robotStates) updateState(id string, known bool, to func(*robotState)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[id]
	if w == nil {
		if !known && len(r.unknown) >= maxUnknownRobots {
			return false
		}
		if !known {
			r.unknown[id] = struct{}{}
		}
		w = &robotState{plaintext: r.plaintext}
		r.byID[id] = w
	}
	to(w)
	return true
}

// forgetUnknown removes the states of robots that have no object and are silent.
func (r *robotStates) forgetUnknown(known func(id string) bool, now time.Time, keep time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.unknown {
		switch {
		case known(id):
			delete(r.unknown, id)
		case now.Sub(r.byID[id].lastSeen) > keep:
			delete(r.byID, id)
			delete(r.unknown, id)
		}
	}
}

// markUnknown records that the object of a robot was deleted.
func (r *robotStates) markUnknown(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[id] != nil {
		r.unknown[id] = struct{}{}
	}
}

// recordContact records that a message was received.
func (w *robotState) recordContact(now time.Time) {
	w.lastSeen, w.disconnectReason, w.unconfirmedWill = now, "", time.Time{}
	w.contacts++
}

// storedLastSeen returns lastSeen with the precision of the API, for comparisons.
func (w *robotState) storedLastSeen() time.Time { return w.lastSeen.UTC().Truncate(time.Microsecond) }

func (w *robotState) recordRegistration(now time.Time, protocol string, r wire.Register) {
	w.recordContact(now)
	w.registered, w.awaitsResponse = now, true
	isV2 := protocol == robotv1.ProtocolV2
	w.answersDispatches, w.runsArrays, w.restartsTasks = r.AnswersDispatches && isV2, r.RunsArrays && isV2, r.RestartsTasks && isV2
	w.refusesInterruptions = r.RefusesInterruptions && isV2
	w.unresponsive, w.hasAnswered = false, false // another agent or connection
	w.protocol, w.version, w.address, w.labels = protocol, truncateText(r.AgentVersion), truncateText(r.Address), r.Labels
	w.policy, w.connectionID = r.Policy, truncateText(r.ConnectionID)
	w.local, w.sentUnlock, w.agentUpdate = nil, "", nil
	w.updatesItself = r.UpdatesItself && isV2
	w.prefetches, w.prefetch = r.Prefetches && isV2, nil
	if isV2 {
		w.local, w.agentUpdate = r.Local.WithinLimits(), r.AgentUpdate.WithinLimits()
		w.prefetch = wire.PrefetchWithinLimits(r.Prefetch)
	}
	if u := w.agentUpdate; u == nil || u.Rollout != string(w.sentOrder.rollout) {
		w.sentOrder.isMissing = true // it may not have been received
	}
	if protocol == robotv1.ProtocolV1 {
		w.token = truncateText(r.Token)
	}
	if r.DeviceInfo != nil {
		w.device = deviceWithinLimits(r.DeviceInfo)
	}
}

func (w *robotState) recordHeartbeat(now time.Time, protocol string, h wire.Heartbeat) {
	w.recordContact(now)
	w.heartbeatSeq, w.diskPressure, w.journalReadOnly = h.Seq, h.DiskPressure, h.JournalReadOnly
	if w.protocol == "" {
		w.protocol = protocol
	}
	if h.DeviceInfo != nil {
		w.device = deviceWithinLimits(h.DeviceInfo)
	}
}

// deviceWait returns how long a change of the device must wait to be written. Zero or less: it can
// be written now.
func (w *robotState) deviceWait(now time.Time) time.Duration {
	return w.deviceWrittenAt.Add(deviceWritePeriod).Sub(now)
}

// recordPresence records a disconnect or a last will, unless it is that of an earlier connection.
func (w *robotState) recordPresence(now time.Time, p wire.Presence) {
	switch {
	case p.Online:
		w.recordContact(now)
	case w.isOfOtherConnection(p):
	case p.Graceful:
		w.disconnectReason, w.unconfirmedWill = robotv1.ReasonDisconnected, time.Time{}
	case w.disconnectReason == "" && w.connectionID == "" && now.Sub(w.registered) < staleWillWindow:
		w.unconfirmedWill = now
	case w.disconnectReason == "":
		w.disconnectReason = robotv1.ReasonLastWill
	}
}

// isOfOtherConnection reports whether a message about the end of a connection is not about the one
// that registered. A server that has received no registration yet cannot know.
func (w *robotState) isOfOtherConnection(p wire.Presence) bool {
	return !w.registered.IsZero() && truncateText(p.ConnectionID) != w.connectionID
}

// confirmLastWill marks a robot with an unconfirmed last will as disconnected if it has
// been silent since. It reports whether it did.
func (w *robotState) confirmLastWill(now time.Time) bool {
	if w.unconfirmedWill.IsZero() || now.Sub(w.unconfirmedWill) < willConfirmAfter {
		return false
	}
	// Not LastWill, because the robot is lost since its last message, and not since now.
	w.disconnectReason, w.unconfirmedWill = robotv1.ReasonUnresponsive, time.Time{}
	return true
}

// markSilent marks a robot as disconnected if no message has come for offlineAfter, in which this
// server has listened. It reports whether it did. Legacy agents have no last will.
func (w *robotState) markSilent(now time.Time, listened, offlineAfter time.Duration) bool {
	if w.disconnectReason != "" || min(now.Sub(w.lastSeen), listened) < offlineAfter {
		return false
	}
	w.disconnectReason, w.unconfirmedWill = robotv1.ReasonUnresponsive, time.Time{}
	return true
}

// nextCheck returns when confirmLastWill or markSilent may have an effect, if no message comes until
// then. A robot that is not connected is checked again after offlineAfter.
func (w *robotState) nextCheck(now time.Time, listened, offlineAfter time.Duration) time.Time {
	next := now.Add(offlineAfter)
	if w.disconnectReason == "" {
		if left := offlineAfter - min(now.Sub(w.lastSeen), listened); left > 0 {
			next = now.Add(left)
		}
	}
	if at := w.unconfirmedWill.Add(willConfirmAfter); !w.unconfirmedWill.IsZero() && at.Before(next) {
		next = at
	}
	return next
}

// protocolOf returns the protocol of the robot's last message, else that in its status.
// Empty: unknown.
func protocolOf(w robotState, r *robotv1.Robot) string {
	if w.protocol != "" || r == nil || r.Status.Agent == nil {
		return w.protocol
	}
	return r.Status.Agent.Protocol
}
