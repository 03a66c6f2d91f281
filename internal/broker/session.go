package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	// maxWaiting and maxWaitingBytes bound what waits for one client, away or
	// slow, whole packets counted. The server is the one client that hears from
	// all robots.
	maxWaiting      = 1<<16 - 1
	maxWaitingBytes = 64 << 20
	// maxSent bounds the messages that one client has not acknowledged, below
	// what it allows itself.
	maxSent = 1 << 10
	// maxSentRobot is the same for robots, which are many.
	maxSentRobot = 64
)

// message is one publication.
type message struct {
	topic   string
	payload []byte
	qos     byte
	retain  bool
	size    int // of the packet that it came in, which it keeps in memory
	from    *session
	lasts   time.Duration      // from its publication; zero: for ever
	expires time.Time          // zero: never, or not published yet
	extra   packets.Properties // what is passed on as it came
}

// newMessage is the publication of a packet that its session sent.
func newMessage(pk *packets.Packet, from *session) *message {
	m := &message{
		topic: pk.TopicName, payload: pk.Payload, qos: pk.FixedHeader.Qos, retain: pk.FixedHeader.Retain,
		size: pk.FixedHeader.Remaining, from: from,
	}
	m.keep(&pk.Properties)
	return m
}

// keep takes over the properties that belong to the publication.
func (m *message) keep(p *packets.Properties) {
	m.lasts = time.Duration(p.MessageExpiryInterval) * time.Second
	m.extra = packets.Properties{
		PayloadFormat: p.PayloadFormat, PayloadFormatFlag: p.PayloadFormatFlag, ContentType: p.ContentType,
		ResponseTopic: p.ResponseTopic, CorrelationData: p.CorrelationData, User: p.User,
	}
}

func (m *message) expired(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

// delivery is a message on its way to one client.
type delivery struct {
	*message
	qos    byte
	retain bool
	id     uint16 // zero: not sent yet, or QoS 0
	again  bool   // sent before, on another connection
}

// packet is the delivery as a client of this version reads it.
func (d delivery) packet(version byte, now time.Time) packets.Packet {
	pk := packets.Packet{
		ProtocolVersion: version, TopicName: d.topic, Payload: d.payload, PacketID: d.id, Properties: d.extra,
		Mods: packets.Mods{AllowResponseInfo: true},
	}
	pk.FixedHeader.Qos, pk.FixedHeader.Retain, pk.FixedHeader.Dup = d.qos, d.retain, d.again
	if !d.expires.IsZero() {
		pk.Properties.MessageExpiryInterval = uint32(max(1, d.expires.Sub(now)/time.Second))
	}
	return pk
}

// session is what the broker knows of one client, connected or not. Its
// messages go out in the order in which they came.
type session struct {
	id       string
	identity Identity // of its holder; expires as that of the last connection does
	// filters that it subscribed to. The hub's lock guards them, and the fields
	// up to the next line.
	filters map[string]struct{}
	will    *message // to be published when the session ends, or its delay
	timers  []*time.Timer
	void    bool // its holder is cut off, or not who it was

	mu      sync.Mutex
	conn    *conn // nil: away
	window  int   // how many may be sent and not acknowledged
	waiting []delivery
	bytes   int // of messages in waiting
	sent    []delivery
	lastID  uint16
	full    bool          // something was dropped, and said so
	relief  chan struct{} // closed when robots may go on; nil: none waits
}

func newSession(id string, of Identity) *session {
	return &session{id: id, identity: of, filters: map[string]struct{}{}}
}

// attach gives the session a connection, and returns the one that it takes the
// place of. What was not acknowledged there is sent again, first.
func (s *session) attach(c *conn, window int) (old *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.conn, s.window, s.full = s.conn, c, min(window, maxSent), false
	defer s.relieve()
	for i := range s.sent {
		s.sent[i].again = true
	}
	s.waiting, s.sent = append(s.sent, s.waiting...), nil
	s.weigh()
	return old
}

// detach tells whether c was the session's connection, which it is no more. To
// who is away messages of QoS 0 are lost.
func (s *session) detach(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c {
		return false
	}
	s.conn = nil
	defer s.relieve()
	s.waiting = slices.DeleteFunc(s.waiting, func(d delivery) bool { return d.qos == 0 })
	s.weigh()
	return true
}

func (s *session) weigh() {
	s.bytes = 0
	for _, d := range s.waiting {
		s.bytes += d.size
	}
}

func (s *session) away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil
}

// put queues a delivery. One that finds no room is lost, and may be the first of
// a row.
func (s *session) put(d delivery, now time.Time) (taken, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil && d.qos == 0 {
		return true, false
	}
	// Robots wait for a server that is there. What is over its bound then, each of
	// them has sent one message before it saw.
	waits := s.identity.Role == RoleServer && s.conn != nil
	if !waits && !s.hasRoom(d) {
		s.dropExpired(now)
	}
	if !waits && !s.hasRoom(d) {
		first, s.full = !s.full, true
		return false, first
	}
	s.waiting = append(s.waiting, d)
	s.bytes += d.size
	if s.conn != nil {
		s.conn.wakeUp()
	}
	return true, false
}

func (s *session) hasRoom(d delivery) bool {
	return len(s.waiting) < maxWaiting && s.bytes+d.size <= maxWaitingBytes
}

// behind tells whether so much waits that robots should, too: half of what may,
// so that the messages on their way have room.
func (s *session) behind() bool {
	return s.conn != nil && (len(s.waiting) > maxWaiting/2 || s.bytes > maxWaitingBytes/2)
}

// pressure is closed once the session is not behind. Nil: it is not.
func (s *session) pressure() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.behind() {
		return nil
	}
	if s.relief == nil {
		s.relief = make(chan struct{})
	}
	return s.relief
}

// relieve lets robots go on that have waited, if they may.
func (s *session) relieve() {
	if s.relief != nil && !s.behind() {
		close(s.relief)
		s.relief = nil
	}
}

// dropExpired makes room that is taken up for nothing.
func (s *session) dropExpired(now time.Time) {
	s.waiting = slices.DeleteFunc(s.waiting, func(d delivery) bool { return d.expired(now) })
	s.weigh()
}

// empty drops all that waits for a client that is gone for good.
func (s *session) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.sent, s.bytes = nil, nil, 0
	s.relieve()
}

// next takes the first delivery that may be sent to c now.
func (s *session) next(c *conn, now time.Time) (delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.relieve()
	for s.conn == c && len(s.waiting) > 0 {
		d := s.waiting[0]
		if d.qos > 0 && len(s.sent) >= s.window {
			return delivery{}, false
		}
		s.waiting[0] = delivery{}
		s.waiting = s.waiting[1:]
		s.bytes -= d.size
		if d.expired(now) {
			continue
		}
		if d.qos > 0 {
			if d.id == 0 {
				d.id = s.freeID()
			}
			s.sent = append(s.sent, d)
		}
		return d, true
	}
	s.full = false // what is lost from now on is lost anew
	return delivery{}, false
}

// freeID is a packet identifier that nothing on its way has.
func (s *session) freeID() uint16 {
	for {
		s.lastID++
		used := func(d delivery) bool { return d.id == s.lastID }
		if s.lastID != 0 && !slices.ContainsFunc(s.sent, used) {
			return s.lastID
		}
	}
}

// acked takes in that the client has a message.
func (s *session) acked(c *conn, id uint16) {
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
