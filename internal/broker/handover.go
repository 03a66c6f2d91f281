package broker

import (
	"net"
	"sync"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// handover lets the connections of one client id follow each other one step at
// a time.
//
// The broker forgets a client after its connection has ended, by its id. When
// the same client is back in that moment, as a robot is whose network has just
// flickered, it would forget the new connection with the old one: that goes on,
// and hears nothing ever again.
type handover struct {
	mqtt.HookBase

	mu      sync.Mutex
	changed *sync.Cond
	phases  map[net.Conn]phase
}

// phase is what a connection is in the middle of.
type phase struct {
	id string
	// coming: between the client's identity and its place among the others.
	// Else going: between the end of the connection and the removal of that.
	coming bool
}

func newHandover() *handover {
	h := &handover{phases: map[net.Conn]phase{}}
	h.changed = sync.NewCond(&h.mu)
	return h
}

// ID names the hook.
func (h *handover) ID() string { return "handover" }

// Provides tells the broker which events it wants.
func (h *handover) Provides(event byte) bool {
	return event == mqtt.OnSessionEstablish || event == mqtt.OnSessionEstablished || event == mqtt.OnDisconnect
}

// OnSessionEstablish waits for those who are going.
func (h *handover) OnSessionEstablish(cl *mqtt.Client, _ packets.Packet) {
	h.begin(cl, phase{id: cl.ID, coming: true})
}

// OnSessionEstablished ends what OnSessionEstablish began.
func (h *handover) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) { h.end(cl.Net.Conn) }

// OnDisconnect waits for one who is coming, and takes the place over.
func (h *handover) OnDisconnect(cl *mqtt.Client, _ error, _ bool) {
	h.begin(cl, phase{id: cl.ID})
}

// begin waits until no other connection of the same client is in the middle of
// the opposite.
func (h *handover) begin(cl *mqtt.Client, p phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.busy(phase{id: p.id, coming: !p.coming}) {
		h.changed.Wait()
	}
	h.phases[cl.Net.Conn] = p
}

func (h *handover) busy(p phase) bool {
	for _, other := range h.phases {
		if other == p {
			return true
		}
	}
	return false
}

// end is also called when a connection is over, whatever it was in the middle
// of.
func (h *handover) end(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.phases, conn)
	h.changed.Broadcast()
}
