// Package faultnet simulates a failing network: a proxy between MQTT clients and their broker
// that disconnects, drops, duplicates, delays and reorders.
package faultnet

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to a broker.
type Proxy struct {
	listener net.Listener
	target   string
	faults   *Faults // nil injects none

	mu    sync.Mutex
	state state
	conns map[net.Conn]bool
}

type state int

const (
	open   state = iota
	down         // connections are refused
	silent       // connections stay open, and packets are dropped
)

// New starts a proxy to the broker at target and stops it when the test ends. If f is nil, it
// injects no faults.
func New(t testing.TB, target string, f *Faults) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, faults: f, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); p.CutConnections() })
	go p.acceptConnections()
	return p
}

// Addr returns the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// CutConnections closes all connections and returns their number.
func (p *Proxy) CutConnections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns) / 2
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	return n
}

// RefuseConnections closes all connections and refuses new ones until RestoreNetwork.
func (p *Proxy) RefuseConnections() int {
	p.setState(down)
	return p.CutConnections()
}

// DropPackets drops all packets until RestoreNetwork without closing connections, like a robot
// that leaves the range of the network.
func (p *Proxy) DropPackets() { p.setState(silent) }

// RestoreNetwork ends RefuseConnections and DropPackets. Connections that lost packets are
// closed.
func (p *Proxy) RestoreNetwork() {
	p.setState(down)
	p.CutConnections()
	p.setState(open)
}

func (p *Proxy) setState(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *Proxy) currentState() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Proxy) acceptConnections() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.connectPair(in) {
			in.Close()
		}
	}
}

// connectPair connects a client to the broker.
func (p *Proxy) connectPair(in net.Conn) bool {
	if p.currentState() == down {
		return false
	}
	out, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == down {
		out.Close()
		return false
	}
	p.conns[in], p.conns[out] = true, true
	go p.forwardPackets(in, out)
	go p.forwardPackets(out, in)
	return true
}

// forwardPackets forwards packets until one side closes.
func (p *Proxy) forwardPackets(from, to net.Conn) {
	defer p.closeConns(from, to)
	in, out := bufio.NewReader(from), &packetWriter{Conn: to}
	for {
		b, err := readPacket(in)
		if err != nil {
			return
		}
		if p.currentState() == silent {
			continue
		}
		if p.faults.forwardPacket(b, out) != nil {
			return
		}
	}
}

func (p *Proxy) closeConns(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}
