package fakeserver

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Server answers all robots of a broker and reconnects when the connection breaks. It
// acknowledges every report after onStatus has returned.
type Server struct {
	addr     string
	onStatus func(robot string, s wire.Status)
	done     chan struct{}

	mu            sync.Mutex
	conn          *Conn // nil while disconnected
	closed        bool
	registrations map[string]int // by robot
}

// reconnectDelay is the delay between two attempts to connect.
const reconnectDelay = 100 * time.Millisecond

// Start starts a server on the broker at addr and stops it when the test ends. It calls
// onStatus for each report, including repeated ones.
func Start(t testing.TB, addr string, onStatus func(robot string, s wire.Status)) *Server {
	s := &Server{addr: addr, onStatus: onStatus, done: make(chan struct{}), registrations: map[string]int{}}
	go s.reconnectLoop()
	t.Cleanup(s.shutDown)
	return s
}

func (s *Server) reconnectLoop() {
	defer close(s.done)
	for s.setConn(nil) {
		conn, err := Connect(s.addr, s.handleMessage)
		if err != nil {
			time.Sleep(reconnectDelay)
			continue
		}
		// Set it before subscribing, because answers are sent on it.
		if !s.setConn(conn) || conn.SubscribeReports() != nil {
			conn.Close()
		}
		<-conn.Done()
	}
}

// setConn sets the connection and reports whether the server is still open.
func (s *Server) setConn(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	return !s.closed
}

func (s *Server) shutDown() {
	s.mu.Lock()
	s.closed = true
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	<-s.done
}

func (s *Server) handleMessage(topic string, payload []byte) {
	a, err := wire.ParseTopic(topic)
	if err != nil {
		panic(fmt.Sprintf("message of a robot on topic %s: %v", topic, err))
	}
	switch a.Kind {
	case wire.KindRegister:
		s.mu.Lock()
		s.registrations[a.RobotID]++
		s.mu.Unlock()
		s.sendToRobot(a.RobotID, wire.KindResponse, wire.Response{Success: true, RobotID: a.RobotID})
	case wire.KindHeartbeat:
		s.sendToRobot(a.RobotID, wire.KindAck, wire.Ack{Heartbeat: mustDecode[wire.Heartbeat](payload).Seq})
	case wire.KindStatus:
		r := mustDecode[wire.Status](payload)
		s.onStatus(a.RobotID, r)
		s.sendToRobot(a.RobotID, wire.KindAck, wire.Ack{Tasks: []wire.TaskAck{{UID: r.TaskUID, Attempt: r.Attempt, Seq: r.Seq}}})
	default: // not relevant
	}
}

// RegistrationCount returns how often a robot has registered.
func (s *Server) RegistrationCount(robot string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registrations[robot]
}

// SendDispatch sends a dispatch to a robot, or drops it while disconnected.
func (s *Server) SendDispatch(robot string, d wire.Dispatch) {
	s.sendToRobot(robot, wire.KindDispatch, d)
}

func (s *Server) sendToRobot(robot string, k wire.Kind, v any) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return
	}
	payload, err := wire.Encode(v)
	if err != nil {
		panic(err) // cannot happen for our own types
	}
	conn.Send(wire.RobotTopic(robot, k), payload, false)
}

func mustDecode[T any](payload []byte) T {
	v, err := wire.Decode[T](payload)
	if err != nil {
		panic(fmt.Sprintf("a robot sent %q: %v", payload, err))
	}
	return v
}
