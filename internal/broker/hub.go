package broker

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// maxFilters bounds the subscriptions of one session.
	maxFilters = 1 << 10
	// maxRetained bounds the retained messages: one for each robot of the
	// largest fleet that one process can serve.
	maxRetained = 1 << 16
	// maxRetainedBytes bounds what they keep in memory.
	maxRetainedBytes = 512 << 20
)

// errAskAgain says that who connects must be asked for anew.
var errAskAgain = errors.New("somebody was cut off meanwhile")

// hub joins the sessions: who is there, who hears what, and what is retained.
//
// Locks are taken in one order: the hub's, then a session's. Nothing is written
// to a connection with either held.
type hub struct {
	log       *slog.Logger
	now       func() time.Time
	authority Authority
	limits    Limits
	places    *places
	refusals  *refusals

	mu       sync.RWMutex
	cuts     int // how often somebody was cut off
	sessions map[string]*session
	filters  tree
	retained map[string]*message
	bytes    int      // of retained messages
	server   *session // that robots wait for; nil: there is none
	closed   bool
}

func newHub(cfg Config, now func() time.Time) *hub {
	return &hub{
		log: cfg.Log, now: now, authority: cfg.Authority, limits: cfg.Limits,
		places:   newPlaces(cfg.Limits, cfg.Authority == everyone{}, now),
		refusals: &refusals{tell: cfg.Refused, now: now, count: map[Attempt]uint64{}, said: map[string]time.Time{}},
		sessions: map[string]*session{}, retained: map[string]*message{},
	}
}

// connect gives a connection its session: the one that its client left behind,
// unless there is none or the client starts clean. A client that is connected
// already loses its connection to this one.
//
// It is refused if the session is another's, and with errAskAgain if somebody
// was cut off since cuts: it may have been this one.
func (h *hub) connect(c *conn, clean bool, window, cuts int) (s *session, resumed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cuts != cuts {
		return nil, false, errAskAgain
	}
	s, resumed = h.sessions[c.id]
	if s != nil && !s.identity.sameHolder(c.identity) && !s.away() {
		return nil, false, packets.ErrClientIdentifierNotValid
	}
	if s != nil && !s.identity.same(c.identity) {
		h.void(s, codeTakenOver)
		s, resumed = nil, false
	}
	if s != nil && clean {
		if old := s.attach(nil, 0); old != nil {
			old.end(codeTakenOver)
		}
		h.drop(s)
		resumed = false
	}
	if !resumed {
		s = newSession(c.id, c.identity)
		h.sessions[c.id] = s
	}
	if c.identity.Role == RoleServer {
		h.server = s
	}
	s.rest()
	s.identity, s.will = c.identity, nil
	if c.identity.isBounded() {
		window = min(window, maxSentRobot)
	}
	if old := s.attach(c, window); old != nil {
		old.end(codeTakenOver)
	}
	return s, resumed, nil
}

// void ends a session whose holder is not who it was: nobody hears from it any
// more, nor of its end. Its caller holds the lock.
func (h *hub) void(s *session, why packets.Code) {
	s.void, s.will = true, nil
	if old := s.attach(nil, 0); old != nil {
		old.end(why)
	}
	h.drop(s)
}

// cut voids all sessions of a name, and what is retained on its topics by others
// than the server: who had the name before, or pretended to, would go on
// commanding who has it now.
func (h *hub) cut(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cuts++
	for _, s := range h.sessions {
		if s.identity.Name == name {
			h.void(s, packets.ErrNotAuthorized)
		}
	}
	for topic, m := range h.retained {
		if wire.RobotOf(topic) == name && (m.from == nil || m.from.identity.Role != RoleServer) {
			h.unretain(topic)
		}
	}
}

// cutsSoFar is what connect compares.
func (h *hub) cutsSoFar() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.cuts
}

// disconnect takes in the end of a connection. The session outlives it by its
// expiry. A will is published unless the client said goodbye.
func (h *hub) disconnect(c *conn, goodbye bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := c.session
	will := c.will
	if goodbye {
		will = nil
	}
	if !s.detach(c) {
		// Another connection has the session, or has ended it. Who is back before
		// the delay of its will has nothing to be mourned for.
		if c.willDelay == 0 || h.sessions[c.id] != s {
			h.mourn(s, will)
		}
		return
	}
	if c.willDelay == 0 || c.expiry == 0 {
		h.mourn(s, will)
	} else if will != nil {
		s.will = will
		s.after(c.willDelay, func() { h.later(s, h.publishWill) })
	}
	if c.expiry == 0 {
		h.drop(s)
		return
	}
	s.after(c.expiry, func() { h.later(s, h.drop) })
}

// after does something later, unless the client comes back before.
func (s *session) after(d time.Duration, do func()) {
	s.timers = append(s.timers, time.AfterFunc(d, do))
}

// rest stops what was to be done later.
func (s *session) rest() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

// later does something to a session whose client is still away.
func (h *hub) later(s *session, do func(*session)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed && h.sessions[s.id] == s && s.away() {
		do(s)
	}
}

// drop ends a session. Its caller holds the lock, as those below.
func (h *hub) drop(s *session) {
	s.rest()
	h.publishWill(s)
	for filter := range s.filters {
		h.filters.remove(filter, s)
	}
	delete(h.sessions, s.id)
	if h.server == s {
		h.server = nil
	}
	s.empty()
}

func (h *hub) publishWill(s *session) {
	h.mourn(s, s.will)
	s.will = nil
}

// mourn publishes a will, if there is one that may still be said.
func (h *hub) mourn(s *session, will *message) {
	if will != nil && !s.identity.expired(h.now()) && s.identity.mayPublish(will.topic, will.retain) {
		h.route(will)
	}
}

// publish routes a message to everybody who subscribed to its topic.
func (h *hub) publish(m *message) {
	if m.retain {
		h.mu.Lock()
		defer h.mu.Unlock()
	} else {
		h.mu.RLock()
		defer h.mu.RUnlock()
	}
	h.route(m)
}

// warn writes to the log. It waits for nobody who holds a lock: a log that
// blocks would stop every client.
func (h *hub) warn(line, key, value string) { go h.log.Warn(line, key, value) }

// route is publish for who holds the lock; for writing if the message is to be
// retained. Nil is no message.
func (h *hub) route(m *message) {
	if m == nil || h.closed || m.from != nil && m.from.void {
		return
	}
	now := h.now()
	if m.lasts > 0 {
		m.expires = now.Add(m.lasts)
	}
	if m.retain {
		h.retain(m)
	}
	for s, sub := range h.filters.match(m.topic) {
		if sub.noLocal && s == m.from {
			continue
		}
		h.put(s, delivery{message: m, qos: min(m.qos, sub.qos), retain: m.retain && sub.retainAsPublished}, now)
	}
}

// retain keeps the last message of a topic for those who come later. One
// without a payload clears it.
func (h *hub) retain(m *message) {
	h.unretain(m.topic)
	switch {
	case len(m.payload) == 0:
	case len(h.retained) < maxRetained && h.bytes+m.size <= maxRetainedBytes:
		h.retained[m.topic] = m
		h.bytes += m.size
	default:
		h.warn("too many retained messages, one is not kept", "topic", m.topic)
	}
}

func (h *hub) unretain(topic string) {
	if old := h.retained[topic]; old != nil {
		h.bytes -= old.size
		delete(h.retained, topic)
	}
}

func (h *hub) put(s *session, d delivery, now time.Time) {
	taken, first := s.put(d, now)
	if !taken {
		h.refusals.dropped.Add(1)
	}
	if first {
		h.warn("a client does not take its messages, some are lost", "client", s.id)
	}
}

// retainNever is the retain handling of a subscription that wants no retained
// messages, retainFresh of one that wants them only when it is new (MQTT 5,
// 3.8.3.1).
const (
	retainFresh = 1
	retainNever = 2
)

// subscribe adds a subscription and returns the answer to it.
func (h *hub) subscribe(s *session, asked packets.Subscription) packets.Code {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.id] != s {
		// A clean start has ended the session while its old connection was about
		// to subscribe: what is added now nobody would ever take out.
		return packets.ErrSessionTakenOver
	}
	if _, had := s.filters[asked.Filter]; !had && len(s.filters) >= maxFilters {
		return packets.ErrQuotaExceeded
	}
	filter := strings.Clone(asked.Filter) // not with all of the packet
	sub := subscription{qos: min(asked.Qos, 1), noLocal: asked.NoLocal, retainAsPublished: asked.RetainAsPublished}
	s.filters[filter] = struct{}{}
	fresh := h.filters.add(filter, s, sub)
	if asked.RetainHandling != retainNever && (fresh || asked.RetainHandling != retainFresh) {
		h.sendRetained(s, filter, sub)
	}
	return packets.QosCodes[sub.qos]
}

func (h *hub) sendRetained(s *session, filter string, sub subscription) {
	now := h.now()
	send := func(m *message) {
		if m.expired(now) {
			h.unretain(m.topic)
			return
		}
		h.put(s, delivery{message: m, qos: min(m.qos, sub.qos), retain: true}, now)
	}
	if m := h.retained[filter]; m != nil {
		send(m)
		return
	}
	for topic, m := range h.retained {
		if matches(filter, topic) {
			send(m)
		}
	}
}

// unsubscribe tells whether there was such a subscription.
func (h *hub) unsubscribe(s *session, filter string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, had := s.filters[filter]
	delete(s.filters, filter)
	h.filters.remove(filter, s)
	return had
}

// pressure is closed once the server has caught up with what robots have said.
// Nil: it has, or is away.
func (h *hub) pressure() <-chan struct{} {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.server == nil {
		return nil
	}
	return h.server.pressure()
}

func (h *hub) stats() Stats {
	s := Stats{Connections: h.places.taken(), Refused: h.refusals.counts(), Slowed: h.refusals.slowed.Load(), Dropped: h.refusals.dropped.Load()}
	h.mu.RLock()
	defer h.mu.RUnlock()
	s.Sessions, s.Retained = len(h.sessions), len(h.retained)
	return s
}

// close lets nothing happen any more.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, s := range h.sessions {
		s.rest()
	}
}
