package fakeserver

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// Server answers all robots of a broker, to which it connects again for ever. It
// acknowledges every report once heard has returned.
type Server struct {
	addr  string
	heard func(robot string, s wire.Status)
	ended chan struct{}

	mu     sync.Mutex
	conn   *Conn // nil: down
	closed bool
	online map[string]int // registrations of each robot
}

// reconnect is the pause between two tries.
const reconnect = 100 * time.Millisecond

// Start starts a server on the broker at addr, for as long as the test lasts.
// heard gets each report as it comes, also one that comes again.
func Start(t testing.TB, addr string, heard func(robot string, s wire.Status)) *Server {
	s := &Server{addr: addr, heard: heard, ended: make(chan struct{}), online: map[string]int{}}
	go s.run()
	t.Cleanup(s.close)
	return s
}

func (s *Server) run() {
	defer close(s.ended)
	for s.hold(nil) {
		conn, err := Connect(s.addr, s.take)
		if err != nil {
			time.Sleep(reconnect)
			continue
		}
		// It is known before it hears anything, for the answers go out on it.
		if !s.hold(conn) || conn.Listen() != nil {
			conn.Close()
		}
		<-conn.Done()
	}
}

// hold sets the connection, unless the server is closed.
func (s *Server) hold(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	return !s.closed
}

func (s *Server) close() {
	s.mu.Lock()
	s.closed = true
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	<-s.ended
}

func (s *Server) take(topic string, payload []byte) {
	a, err := wire.ParseTopic(topic)
	if err != nil {
		panic(fmt.Sprintf("a robot speaks on %s: %v", topic, err))
	}
	switch a.Kind {
	case wire.KindRegister:
		s.mu.Lock()
		s.online[a.RobotID]++
		s.mu.Unlock()
		s.say(a.RobotID, wire.KindResponse, wire.Response{Success: true, RobotID: a.RobotID})
	case wire.KindHeartbeat:
		s.say(a.RobotID, wire.KindAck, wire.Ack{Heartbeat: read[wire.Heartbeat](payload).N})
	case wire.KindStatus:
		r := read[wire.Status](payload)
		s.heard(a.RobotID, r)
		s.say(a.RobotID, wire.KindAck, wire.Ack{Tasks: []wire.TaskAck{{UID: r.TaskUID, Attempt: r.Attempt, Seq: r.Seq}}})
	default: // nothing follows from it
	}
}

// Registered is how often a robot has registered.
func (s *Server) Registered(robot string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online[robot]
}

// Dispatch sends it to a robot. It is lost while there is no connection.
func (s *Server) Dispatch(robot string, d wire.Dispatch) { s.say(robot, wire.KindDispatch, d) }

func (s *Server) say(robot string, k wire.Kind, v any) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return
	}
	payload, err := wire.Encode(v)
	if err != nil {
		panic(err) // made here
	}
	conn.Send(wire.RobotTopic(robot, k), payload, false)
}

func read[T any](payload []byte) T {
	v, err := wire.Decode[T](payload)
	if err != nil {
		panic(fmt.Sprintf("a robot sent %q: %v", payload, err))
	}
	return v
}
