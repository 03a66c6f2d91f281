package broker

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// maxFilters bounds the subscriptions of one session.
	maxFilters = 1 << 10
	// maxRetained bounds the retained messages: one for each robot of the largest fleet.
	maxRetained = 1 << 17
	// maxRetainedBytes bounds their memory.
	maxRetainedBytes = 512 << 20
)

// errRetryAuthentication requests that a connecting client is authenticated again.
var errRetryAuthentication = errors.New("a client was revoked while this one connected")

// hub has all sessions, their subscriptions and the retained messages.
//
// Lock order: the hub's, then a session's. No connection is written to while either
// is held.
type hub struct {
	log           *slog.Logger
	now           func() time.Time
	authenticator Authenticator
	limits        Limits
	slots         *connSlots
	refusals      *refusals
	limiters      *clientLimiters
	admission     *admission
	postponed     atomic.Uint64 // connections of robots that were asked to come back

	mu          sync.RWMutex
	revocations int // number of calls of revokeName
	sessions    map[string]*session
	filters     filterTree
	retained    map[string]*message
	bytes       int      // of retained messages
	server      *session // the server's session, whose backlog slows robots down; may be nil
	closed      bool
}

func newHub(cfg Config, now func() time.Time) *hub {
	return &hub{
		log: cfg.Log, now: now, authenticator: cfg.Authenticator, limits: cfg.Limits,
		slots: newConnSlots(cfg.Limits, cfg.Authenticator == allowEveryone{}, now),
		refusals: &refusals{
			report: cfg.OnRefused, now: now, counts: map[RefusalKind]uint64{}, reports: limits.Interval{Period: reportInterval, MaxNames: maxReportedNames},
			reportThrottled: cfg.OnThrottled, throttledNames: limits.Interval{Period: throttledInterval, MaxNames: maxReportedNames},
		},
		limiters:  &clientLimiters{limits: cfg.Limits, now: time.Now},
		admission: newAdmission(cfg.Limits),
		sessions:  map[string]*session{}, retained: map[string]*message{},
	}
}

// attachSession gives a connection the session of its client, or a new one if there is
// none or the client starts clean. It closes the client's previous connection. It
// refuses a session of another client, and returns errRetryAuthentication if a client
// was revoked since the given count.
func (h *hub) attachSession(c *conn, clean bool, window, revocations int) (s *session, resumed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revocations != revocations {
		return nil, false, errRetryAuthentication
	}
	s, resumed = h.sessions[c.id]
	if s != nil && !s.identity.isSameClient(c.identity) && !s.isDisconnected() {
		return nil, false, packets.ErrClientIdentifierNotValid
	}
	if s != nil && !s.identity.canResume(c.identity) {
		h.revokeLocked(s, codeTakenOver)
		s, resumed = nil, false
	}
	if s != nil && clean {
		if old := s.attachConn(nil, 0); old != nil {
			old.closeWith(codeTakenOver)
		}
		h.dropLocked(s)
		resumed = false
	}
	if !resumed {
		s = newSession(c.id, c.identity, h.limits.QueuedBytes)
		h.sessions[c.id] = s
	}
	if c.identity.Role == acl.Server {
		h.server = s
	}
	s.stopTimers()
	s.identity, s.will = c.identity, nil
	if c.identity.isLimited() {
		window = min(window, maxInflightRobot)
	}
	if old := s.attachConn(c, window); old != nil {
		old.closeWith(codeTakenOver)
	}
	return s, resumed, nil
}

// revokeLocked ends a session whose client has lost its identity: it publishes nothing
// more, not even its will.
func (h *hub) revokeLocked(s *session, reason packets.Code) {
	s.isRevoked, s.will = true, nil
	if old := s.attachConn(nil, 0); old != nil {
		old.closeWith(reason)
	}
	h.dropLocked(s)
}

// revokeName ends all sessions of a name, and removes what others than the server have
// retained on its topics: a previous or false holder of the name could otherwise still
// command its new one.
func (h *hub) revokeName(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revocations++
	for _, s := range h.sessions {
		if s.identity.Name == name {
			h.revokeLocked(s, packets.ErrNotAuthorized)
		}
	}
	for topic, m := range h.retained {
		if wire.RobotIDInTopic(topic) == name && (m.from == nil || m.from.identity.Role != acl.Server) {
			h.unretainLocked(topic)
		}
	}
}

// revocationCount returns the count that attachSession compares.
func (h *hub) revocationCount() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.revocations
}

// detachSession handles the end of a connection. The session remains until it expires. A
// will is published unless the client disconnected normally.
func (h *hub) detachSession(c *conn, disconnectedNormally bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := c.session
	will := c.will
	if disconnectedNormally {
		will = nil
	}
	if !s.detachConn(c) {
		// Another connection has the session, or has ended it. The will of a client
		// that is back before the will delay is not published.
		if c.willDelay == 0 || h.sessions[c.id] != s {
			h.publishWillLocked(s, will)
		}
		return
	}
	if c.willDelay == 0 || c.expiry == 0 {
		h.publishWillLocked(s, will)
	} else if will != nil {
		s.will = will
		s.runAfter(c.willDelay, func() { h.runIfDisconnected(s, h.publishSessionWillLocked) })
	}
	if c.expiry == 0 {
		h.dropLocked(s)
		return
	}
	s.runAfter(c.expiry, func() { h.runIfDisconnected(s, h.dropLocked) })
}

// runAfter calls do after d, unless the client comes back before.
func (s *session) runAfter(d time.Duration, do func()) {
	s.timers = append(s.timers, time.AfterFunc(d, do))
}

func (s *session) stopTimers() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

// runIfDisconnected calls do if the session's client is still disconnected.
func (h *hub) runIfDisconnected(s *session, do func(*session)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed && h.sessions[s.id] == s && s.isDisconnected() {
		do(s)
	}
}

// dropLocked ends a session.
func (h *hub) dropLocked(s *session) {
	s.stopTimers()
	h.publishSessionWillLocked(s)
	for filter := range s.filters {
		h.filters.removeFilter(filter, s)
	}
	delete(h.sessions, s.id)
	if h.server == s {
		h.server = nil
	}
	s.dropAll()
}

func (h *hub) publishSessionWillLocked(s *session) {
	h.publishWillLocked(s, s.will)
	s.will = nil
}

// publishWillLocked publishes a will if there is one and the client may still publish
// it.
func (h *hub) publishWillLocked(s *session, will *message) {
	if will != nil && !s.identity.isExpired(h.now()) && s.identity.mayPublish(will.topic, will.retain) {
		h.routeLocked(will)
	}
}

// publishMessage routes a message to all subscribers of its topic.
func (h *hub) publishMessage(m *message) {
	if m.retain {
		h.mu.Lock()
		defer h.mu.Unlock()
	} else {
		h.mu.RLock()
		defer h.mu.RUnlock()
	}
	h.routeLocked(m)
}

// logWarning logs in a goroutine, because callers hold locks and a log may block.
func (h *hub) logWarning(line, key, value string) { go h.log.Warn(line, key, value) }

// routeLocked is publishMessage for callers that hold h.mu, for writing if the message
// is to be retained. M may be nil.
func (h *hub) routeLocked(m *message) {
	if m == nil || h.closed || m.from != nil && m.from.isRevoked {
		return
	}
	now := h.now()
	if m.expiry > 0 {
		m.expires = now.Add(m.expiry)
	}
	if m.retain {
		h.retainLocked(m)
	}
	for s, sub := range h.filters.matchTopic(m.topic) {
		if sub.noLocal && s == m.from {
			continue
		}
		h.deliverLocked(s, delivery{message: m, qos: min(m.qos, sub.qos), retain: m.retain && sub.retainAsPublished}, now)
	}
}

// retainLocked stores the last message of a topic. One without a payload removes it.
func (h *hub) retainLocked(m *message) {
	h.unretainLocked(m.topic)
	switch {
	case len(m.payload) == 0:
	case len(h.retained) < maxRetained && h.bytes+m.size <= maxRetainedBytes:
		h.retained[m.topic] = m
		h.bytes += m.size
	default:
		h.logWarning("too many retained messages; one was not stored", "topic", m.topic)
	}
}

func (h *hub) unretainLocked(topic string) {
	if old := h.retained[topic]; old != nil {
		h.bytes -= old.size
		delete(h.retained, topic)
	}
}

func (h *hub) deliverLocked(s *session, d delivery, now time.Time) {
	taken, first := s.enqueue(d, now)
	if !taken {
		h.refusals.dropped.Add(1)
	}
	if first {
		h.logWarning("a client reads too slowly; messages were dropped", "client", s.id)
	}
}

// Retain handling of a subscription: retainNever sends no retained messages,
// retainFresh only for a new subscription (MQTT 5, 3.8.3.1).
const (
	retainFresh = 1
	retainNever = 2
)

// addSubscription adds a subscription and returns its reason code.
func (h *hub) addSubscription(s *session, requested packets.Subscription) packets.Code {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.id] != s {
		// A clean start has ended the session while its old connection was about to
		// subscribe: the subscription would never be removed.
		return packets.ErrSessionTakenOver
	}
	if _, had := s.filters[requested.Filter]; !had && len(s.filters) >= maxFilters {
		return packets.ErrQuotaExceeded
	}
	filter := strings.Clone(requested.Filter) // not with all of the packet
	sub := subscription{qos: min(requested.Qos, 1), noLocal: requested.NoLocal, retainAsPublished: requested.RetainAsPublished}
	s.filters[filter] = struct{}{}
	fresh := h.filters.addFilter(filter, s, sub)
	if requested.RetainHandling != retainNever && (fresh || requested.RetainHandling != retainFresh) {
		h.sendRetainedLocked(s, filter, sub)
	}
	return packets.QosCodes[sub.qos]
}

func (h *hub) sendRetainedLocked(s *session, filter string, sub subscription) {
	now := h.now()
	send := func(m *message) {
		if m.isExpired(now) {
			h.unretainLocked(m.topic)
			return
		}
		h.deliverLocked(s, delivery{message: m, qos: min(m.qos, sub.qos), retain: true}, now)
	}
	if isValidTopic(filter) { // a robot subscribes to four, none of which has a wildcard
		if m := h.retained[filter]; m != nil {
			send(m)
		}
		return
	}
	for topic, m := range h.retained {
		if matchesFilter(filter, topic) {
			send(m)
		}
	}
}

// removeSubscription reports whether there was such a subscription.
func (h *hub) removeSubscription(s *session, filter string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, had := s.filters[filter]
	delete(s.filters, filter)
	h.filters.removeFilter(filter, s)
	return had
}

// serverBacklog returns a channel that is closed once the server has caught up with the
// messages of robots. Nil: it has, or is not connected.
func (h *hub) serverBacklog() <-chan struct{} {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.server == nil {
		return nil
	}
	return h.server.backlog()
}

func (h *hub) readStats() Stats {
	s := Stats{Connections: h.slots.openCount(), Refused: h.refusals.snapshot(), Throttled: h.refusals.throttled.Load(), Dropped: h.refusals.dropped.Load(), Postponed: h.postponed.Load()}
	h.mu.RLock()
	defer h.mu.RUnlock()
	s.Sessions, s.Retained = len(h.sessions), len(h.retained)
	return s
}

// close stops all timers and routing.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, s := range h.sessions {
		s.stopTimers()
	}
}
