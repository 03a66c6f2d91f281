package transport

import (
	"reflect"
	"sync"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// deviceInterval is the minimum time between two changes of the device that are sent. The server
// writes no more.
const deviceInterval = time.Minute

// deviceChanges decides which heartbeats carry the device. After a change every heartbeat
// carries it until one of these was acknowledged: the first may be lost.
type deviceChanges struct {
	mu           sync.Mutex
	acknowledged wire.DeviceInfo // WithoutUsage, as the server knows it
	sent         wire.DeviceInfo // WithoutUsage, as in every heartbeat since sentSince
	sentSince    uint64          // zero: heartbeats carry no device
	changedAt    time.Time       // when the last change was first sent
}

// recordRegistration records that the server got this device with a registration.
func (n *deviceChanges) recordRegistration(at time.Time, d wire.DeviceInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acknowledged, n.sentSince, n.changedAt = d.WithoutUsage(), 0, at
}

// shouldSend reports whether the heartbeat with this number must carry the device.
func (n *deviceChanges) shouldSend(at time.Time, seq uint64, d wire.DeviceInfo) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := d.WithoutUsage()
	if n.sentSince > 0 && reflect.DeepEqual(now, n.sent) {
		return true
	}
	if n.sentSince == 0 && reflect.DeepEqual(now, n.acknowledged) {
		return false
	}
	if !n.changedAt.IsZero() && at.Sub(n.changedAt) < deviceInterval {
		if n.sentSince > 0 {
			n.acknowledged, n.sentSince = wire.DeviceInfo{}, 0 // the server may have either
		}
		return false
	}
	n.sent, n.sentSince, n.changedAt = now, seq, at
	return true
}

// recordAck records that the server has received the heartbeat with this number.
func (n *deviceChanges) recordAck(seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sentSince > 0 && seq >= n.sentSince {
		n.acknowledged, n.sentSince = n.sent, 0
	}
}
