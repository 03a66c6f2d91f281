package transport

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func TestDeviceChanges_SentUntilAcknowledged(t *testing.T) {
	a, b := wire.DeviceInfo{Hostname: "a"}, wire.DeviceInfo{Hostname: "b"}
	n := &deviceChanges{}
	at := time.Unix(1e9, 0)
	n.recordRegistration(at, a)
	for _, step := range []struct {
		name  string
		acked uint64
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
		{name: "the last one counts", acked: 7, beat: 8, now: b},
		{name: "usage is no change", beat: 9, now: wire.DeviceInfo{Hostname: "b", Uptime: 7}},
	} {
		if step.acked > 0 {
			n.recordAck(step.acked)
		}
		at = at.Add(deviceInterval)
		if got := n.shouldSend(at, step.beat, step.now); got != step.want {
			t.Errorf("%s: %v", step.name, got)
		}
	}
}

func TestDeviceChanges_SendsOneChangePerMinute(t *testing.T) {
	a, b, c := wire.DeviceInfo{Hostname: "a"}, wire.DeviceInfo{Hostname: "b"}, wire.DeviceInfo{Hostname: "c"}
	start := time.Unix(1e9, 0)
	n := &deviceChanges{}
	n.recordRegistration(start, a)
	for _, step := range []struct {
		name  string
		after time.Duration
		acked uint64
		beat  uint64
		now   wire.DeviceInfo
		want  bool
	}{
		{name: "a change in the minute of the registration", after: 59 * time.Second, beat: 1, now: b},
		{name: "the same after the minute", after: time.Minute, beat: 2, now: b, want: true},
		{name: "repeated until it is acknowledged", after: 70 * time.Second, beat: 3, now: b, want: true},
		{name: "another change in the next minute", after: 80 * time.Second, beat: 4, now: c},
		{name: "an ack of a heartbeat without it", after: 90 * time.Second, acked: 4, beat: 5, now: c},
		{name: "after the next minute", after: 2 * time.Minute, beat: 6, now: c, want: true},
		{name: "a change back is held back too", after: 150 * time.Second, acked: 6, beat: 7, now: b},
		{name: "what is known is not sent", after: 170 * time.Second, beat: 8, now: c},
	} {
		if step.acked > 0 {
			n.recordAck(step.acked)
		}
		if got := n.shouldSend(start.Add(step.after), step.beat, step.now); got != step.want {
			t.Errorf("%s: %v", step.name, got)
		}
	}
}
