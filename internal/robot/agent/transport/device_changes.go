package transport

import (
	"reflect"
	"sync"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// deviceChanges decides which heartbeats carry the device. After a change every heartbeat
// carries it until one of these was acknowledged: the first may be lost.
type deviceChanges struct {
	mu           sync.Mutex
	acknowledged wire.DeviceInfo // WithoutUsage, as the server knows it
	sent         wire.DeviceInfo // WithoutUsage, as in every heartbeat since sentSince
	sentSince    uint64          // zero: heartbeats carry no device
}

// recordRegistration records that the server got this device with a registration.
func (n *deviceChanges) recordRegistration(d wire.DeviceInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acknowledged, n.sentSince = d.WithoutUsage(), 0
}

// shouldSend reports whether the heartbeat with this number must carry the device.
func (n *deviceChanges) shouldSend(seq uint64, d wire.DeviceInfo) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := d.WithoutUsage()
	if n.sentSince > 0 && reflect.DeepEqual(now, n.sent) {
		return true
	}
	if n.sentSince == 0 && reflect.DeepEqual(now, n.acknowledged) {
		return false
	}
	n.sent, n.sentSince = now, seq
	return true
}

// recordAck records that the server has received the heartbeat with this number. If the device is
// pending there, it is sent again.
func (n *deviceChanges) recordAck(seq uint64, devicePending bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if devicePending && n.sentSince == 0 {
		n.acknowledged = wire.DeviceInfo{} // what a registration has carried
	}
	if !devicePending && n.sentSince > 0 && seq >= n.sentSince {
		n.acknowledged, n.sentSince = n.sent, 0
	}
}
