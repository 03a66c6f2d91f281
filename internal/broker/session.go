package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"k8s4r.io/k8s4r/internal/protocol/acl"
)

const (
	// maxQueued bounds the messages in the queue of one client, and Limits.QueuedBytes
	// their size.
	maxQueued = 1<<16 - 1
	// maxInflight bounds the unacknowledged messages to one client, below the client's
	// Receive Maximum.
	maxInflight = 1 << 10
	// maxInflightRobot is the same for robots, of which there are many.
	maxInflightRobot = 64
)

// message is one publication.
type message struct {
	topic   string
	payload []byte
	qos     byte
	retain  bool
	size    int // of the packet that it came in, which it keeps in memory
	from    *session
	expiry  time.Duration      // from its publication; zero: never
	expires time.Time          // zero: never, or not published yet
	extra   packets.Properties // what is passed on as it came
}

// newMessage returns the publication in a packet of a session.
func newMessage(pk *packets.Packet, from *session) *message {
	m := &message{
		topic: pk.TopicName, payload: pk.Payload, qos: pk.FixedHeader.Qos, retain: pk.FixedHeader.Retain,
		size: pk.FixedHeader.Remaining, from: from,
	}
	m.copyProperties(&pk.Properties)
	return m
}

// copyProperties copies the properties that subscribers receive.
func (m *message) copyProperties(p *packets.Properties) {
	m.expiry = time.Duration(p.MessageExpiryInterval) * time.Second
	m.extra = packets.Properties{
		PayloadFormat: p.PayloadFormat, PayloadFormatFlag: p.PayloadFormatFlag, ContentType: p.ContentType,
		ResponseTopic: p.ResponseTopic, CorrelationData: p.CorrelationData, User: p.User,
	}
}

func (m *message) isExpired(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

// delivery is a message queued for one client.
type delivery struct {
	*message
	qos         byte
	retain      bool
	id          uint16 // zero: not sent yet, or QoS 0
	redelivered bool   // sent before, on another connection
}

// toPacket returns the PUBLISH packet in the client's version.
func (d delivery) toPacket(version byte, now time.Time) *packets.Packet {
	pk := &packets.Packet{
		ProtocolVersion: version, TopicName: d.topic, Payload: d.payload, PacketID: d.id, Properties: d.extra,
		Mods: packets.Mods{AllowResponseInfo: true},
	}
	pk.FixedHeader.Qos, pk.FixedHeader.Retain, pk.FixedHeader.Dup = d.qos, d.retain, d.redelivered
	if !d.expires.IsZero() {
		pk.Properties.MessageExpiryInterval = uint32(max(1, d.expires.Sub(now)/time.Second))
	}
	return pk
}

// session is the state of one client, connected or not. Messages keep their order.
type session struct {
	id       string
	identity Identity // of its client, as of the last connection
	maxBytes int      // of messages in waiting
	// filters that it subscribed to. The hub's lock guards them, and the fields
	// up to the next line.
	filters   map[string]struct{}
	will      *message // to be published when the session ends, or its delay
	timers    []*time.Timer
	isRevoked bool // its client was revoked or replaced

	mu         sync.Mutex
	conn       *conn // nil: not connected
	window     int   // how many may be sent and not acknowledged
	waiting    []delivery
	bytes      int // of messages in waiting
	sent       []delivery
	lastID     uint16
	dropLogged bool          // a drop has been logged
	caughtUp   chan struct{} // closed when publishers may go on; nil: none waits
}

// newSession returns a session whose queue holds up to maxBytes.
func newSession(id string, of Identity, maxBytes int) *session {
	return &session{id: id, identity: of, maxBytes: maxBytes, filters: map[string]struct{}{}}
}

// attachConn sets the session's connection and returns the previous one. Unacknowledged
// messages are sent again, first.
func (s *session) attachConn(c *conn, window int) (old *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.conn, s.window, s.dropLogged = s.conn, c, min(window, maxInflight), false
	defer s.releasePublishersLocked()
	for i := range s.sent {
		s.sent[i].redelivered = true
	}
	s.waiting, s.sent = append(s.sent, s.waiting...), nil
	s.sumBytesLocked()
	return old
}

// detachConn removes the connection if it is c, and reports whether it was. Queued
// messages of QoS 0 are dropped.
func (s *session) detachConn(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c {
		return false
	}
	s.conn = nil
	defer s.releasePublishersLocked()
	s.waiting = slices.DeleteFunc(s.waiting, func(d delivery) bool { return d.qos == 0 })
	s.sumBytesLocked()
	return true
}

func (s *session) sumBytesLocked() {
	s.bytes = 0
	for _, d := range s.waiting {
		s.bytes += d.size
	}
}

func (s *session) isDisconnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil
}

// enqueue queues a delivery. It reports whether there was room, and whether this is the
// first drop in a row.
func (s *session) enqueue(d delivery, now time.Time) (taken, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil && d.qos == 0 {
		return true, false
	}
	// Robots wait for a connected server, so it may exceed the bound by at most one
	// message of each robot.
	publishersWait := s.identity.Role == acl.Server && s.conn != nil
	if !publishersWait && !s.hasRoomLocked(d) {
		s.dropExpiredLocked(now)
	}
	if !publishersWait && !s.hasRoomLocked(d) {
		first, s.dropLogged = !s.dropLogged, true
		return false, first
	}
	s.waiting = append(s.waiting, d)
	s.bytes += d.size
	if s.conn != nil {
		s.conn.wakeUp()
	}
	return true, false
}

func (s *session) hasRoomLocked(d delivery) bool {
	return len(s.waiting) < maxQueued && s.bytes+d.size <= s.maxBytes
}

// isBehindLocked reports whether publishers should wait: half of the queue is full,
// which leaves room for messages that are already being handled.
func (s *session) isBehindLocked() bool {
	return s.conn != nil && (len(s.waiting) > maxQueued/2 || s.bytes > s.maxBytes/2)
}

// backlog returns a channel that is closed once the session has caught up. Nil: it has.
func (s *session) backlog() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isBehindLocked() {
		return nil
	}
	if s.caughtUp == nil {
		s.caughtUp = make(chan struct{})
	}
	return s.caughtUp
}

// releasePublishersLocked lets waiting publishers continue if the session has caught up.
func (s *session) releasePublishersLocked() {
	if s.caughtUp != nil && !s.isBehindLocked() {
		close(s.caughtUp)
		s.caughtUp = nil
	}
}

// dropExpiredLocked removes expired messages from the queue.
func (s *session) dropExpiredLocked(now time.Time) {
	s.waiting = slices.DeleteFunc(s.waiting, func(d delivery) bool { return d.isExpired(now) })
	s.sumBytesLocked()
}

// dropAll removes all messages of an ended session.
func (s *session) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.sent, s.bytes = nil, nil, 0
	s.releasePublishersLocked()
}

// takeNext returns the next delivery that may be sent on c.
func (s *session) takeNext(c *conn, now time.Time) (delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.releasePublishersLocked()
	for s.conn == c && len(s.waiting) > 0 {
		d := s.waiting[0]
		if d.qos > 0 && len(s.sent) >= s.window {
			return delivery{}, false
		}
		s.waiting[0] = delivery{}
		s.waiting = s.waiting[1:]
		s.bytes -= d.size
		if d.isExpired(now) {
			continue
		}
		if d.qos > 0 {
			if d.id == 0 {
				d.id = s.nextIDLocked()
			}
			s.sent = append(s.sent, d)
		}
		return d, true
	}
	s.dropLogged = false // log the next drop again
	return delivery{}, false
}

// nextIDLocked returns a packet identifier that is not in use.
func (s *session) nextIDLocked() uint16 {
	for {
		s.lastID++
		used := func(d delivery) bool { return d.id == s.lastID }
		if s.lastID != 0 && !slices.ContainsFunc(s.sent, used) {
			return s.lastID
		}
	}
}

// recordAck removes an acknowledged message.
func (s *session) recordAck(c *conn, id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c {
		return
	}
	if i := slices.IndexFunc(s.sent, func(d delivery) bool { return d.id == id }); i >= 0 {
		s.sent = slices.Delete(s.sent, i, i+1)
		c.wakeUp()
	}
}
