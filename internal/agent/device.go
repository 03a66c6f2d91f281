package agent

import (
	"reflect"
	"sync"

	"k8s4r.io/k8s4r/internal/wire"
)

// deviceNews knows what of the device the server has heard. A change rides
// along with every heartbeat until one that carried it was acknowledged: one
// that was sent once, while the server was away, was lost until the next.
type deviceNews struct {
	mu    sync.Mutex
	known wire.DeviceInfo // Steady, as the server has it
	sent  wire.DeviceInfo // Steady, as in every heartbeat since
	since uint64          // zero: no heartbeat carries anything
}

// registered takes in that the server has heard of this device with a
// registration.
func (n *deviceNews) registered(d wire.DeviceInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known, n.since = d.Steady(), 0
}

// rides tells whether the heartbeat with this number must carry the device.
func (n *deviceNews) rides(beat uint64, d wire.DeviceInfo) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := d.Steady()
	if n.since > 0 && reflect.DeepEqual(now, n.sent) {
		return true
	}
	if n.since == 0 && reflect.DeepEqual(now, n.known) {
		return false
	}
	n.sent, n.since = now, beat
	return true
}

// acked takes in that the server has heard the heartbeat with this number.
func (n *deviceNews) acked(beat uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since > 0 && beat >= n.since {
		n.known, n.since = n.sent, 0
	}
}
