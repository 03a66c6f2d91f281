package transport

import (
	"testing"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestDeviceChanges_SentUntilAcknowledged(t *testing.T) {
	a, b := wire.DeviceInfo{Hostname: "a"}, wire.DeviceInfo{Hostname: "b"}
	n := &deviceChanges{}
	n.recordRegistration(a)
	for _, step := range []struct {
		name  string
		acked uint64
		pends bool
		beat  uint64
		now   wire.DeviceInfo
		want  bool
	}{
		{name: "a registered device is not sent again", beat: 1, now: a},
		{name: "a change is sent", beat: 2, now: b, want: true},
		{name: "an ack of an earlier heartbeat does not count", acked: 1, beat: 3, now: b, want: true},
		{name: "once acknowledged it is known", acked: 3, beat: 4, now: b},
		{name: "it changes again", beat: 5, now: a, want: true},
		{name: "and back, and the server may have either", beat: 6, now: b, want: true},
		{name: "an ack of what was before counts no more", acked: 5, beat: 7, now: b, want: true},
		{name: "the server has not stored it yet", acked: 7, pends: true, beat: 7, now: b, want: true},
		{name: "the last one counts", acked: 7, beat: 8, now: b},
		{name: "the server has not stored what a registration carried", acked: 8, pends: true, beat: 8, now: b, want: true},
		{name: "it has stored it", acked: 8, beat: 8, now: b},
		{name: "usage is no change", beat: 9, now: wire.DeviceInfo{Hostname: "b", Uptime: 7}},
	} {
		if step.acked > 0 {
			n.recordAck(step.acked, step.pends)
		}
		if got := n.shouldSend(step.beat, step.now); got != step.want {
			t.Errorf("%s: %v", step.name, got)
		}
	}
}
