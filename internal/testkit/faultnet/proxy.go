// Package faultnet is a network that fails: a proxy between MQTT clients and
// their broker that cuts, silences, doubles, delays and reorders.
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
	faults   *Faults // nil: none

	mu    sync.Mutex
	state state
	conns map[net.Conn]bool
}

type state int

const (
	open   state = iota
	down         // nothing connects
	silent       // what is connected stays so, and nothing gets through
)

// New starts a proxy to the broker at target, for as long as the test lasts.
// Faults strike the messages that pass; nil: none do.
func New(t testing.TB, target string, f *Faults) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, faults: f, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); p.Cut() })
	go p.serve()
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes every connection and returns how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns) / 2
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
	return n
}

// Down cuts every connection and lets none come about until Up.
func (p *Proxy) Down() int {
	p.be(down)
	return p.Cut()
}

// Silence lets nothing through until Up, and nobody notices: it is what a robot
// meets that drives out of reach.
func (p *Proxy) Silence() { p.be(silent) }

// Up ends Down and Silence. What was silenced is cut: it lacks what was lost.
func (p *Proxy) Up() {
	p.be(down)
	p.Cut()
	p.be(open)
}

func (p *Proxy) be(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *Proxy) is() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.join(in) {
			in.Close()
		}
	}
}

// join puts a client and the broker together.
func (p *Proxy) join(in net.Conn) bool {
	if p.is() == down {
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
	go p.pass(in, out)
	go p.pass(out, in)
	return true
}

// pass hands on what comes, packet by packet.
func (p *Proxy) pass(from, to net.Conn) {
	defer p.forget(from, to)
	in, out := bufio.NewReader(from), &line{Conn: to}
	for {
		b, err := readPacket(in)
		if err != nil {
			return
		}
		if p.is() == silent {
			continue
		}
		if p.faults.strike(b, out) != nil {
			return
		}
	}
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}
