// Package faultnet simulates a failing network: a proxy between MQTT clients and their broker
// that disconnects, drops, duplicates, delays and reorders.
package faultnet

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// Proxy forwards connections to a broker.
type Proxy struct {
	listener net.Listener
	target   string
	faults   *Faults           // nil injects none
	ca       *testca.Authority // nil forwards TLS as it is

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

// New starts a proxy to the broker at target and stops it when the test ends. It forwards bytes,
// with or without TLS.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	return startProxy(t, &Proxy{target: target})
}

// NewFaulty starts a proxy that injects faults into messages. It ends the clients' TLS to read
// them, and connects to the broker with certificates of its own from ca for the same names.
func NewFaulty(t testing.TB, target string, f *Faults, ca *testca.Authority) *Proxy {
	t.Helper()
	return startProxy(t, &Proxy{target: target, faults: f, ca: ca})
}

func startProxy(t testing.TB, p *Proxy) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.listener, p.conns = l, map[net.Conn]bool{}
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
		go func() {
			if p.connectPair(in) != nil {
				in.Close()
			}
		}()
	}
}

// dialTimeout bounds the time until a client is connected to the broker.
const dialTimeout = 5 * time.Second

var errDown = errors.New("connections are refused")

// connectPair connects a client to the broker.
func (p *Proxy) connectPair(in net.Conn) error {
	if p.currentState() == down {
		return errDown
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	in, out, err := p.dialFor(ctx, in)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == down {
		out.Close()
		return errDown
	}
	p.conns[in], p.conns[out] = true, true
	go p.forwardUntilClosed(in, out)
	go p.forwardUntilClosed(out, in)
	return nil
}

// dialFor connects to the broker on behalf of a client. It returns the two connections to forward
// between.
func (p *Proxy) dialFor(ctx context.Context, in net.Conn) (client, broker net.Conn, err error) {
	if p.ca == nil {
		broker, err = (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
		return in, broker, err
	}
	secure := tls.Server(in, &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.ca.CertPool(),
		Certificates: []tls.Certificate{*p.ca.NewServerCertificate()},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	name := secure.ConnectionState().PeerCertificates[0].Subject.CommonName
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: p.ca.CertPool(), Certificates: []tls.Certificate{*p.ca.NewClientCertificate(name, time.Hour)},
	}}
	broker, err = dialer.DialContext(ctx, "tcp", p.target)
	return secure, broker, err
}

// forwardUntilClosed forwards until one side closes.
func (p *Proxy) forwardUntilClosed(from, to net.Conn) {
	defer p.closeConns(from, to)
	if p.faults == nil {
		p.forwardBytes(from, to)
		return
	}
	p.forwardPackets(from, to)
}

func (p *Proxy) forwardBytes(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.currentState() == silent {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) forwardPackets(from, to net.Conn) {
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
