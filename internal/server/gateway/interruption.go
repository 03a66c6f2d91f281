package gateway

import (
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// interruptionOf returns the order to stop a task that its robot may refuse. It is nil if the stop always
// acts. Due is false after the maintenance window: then the order is not sent, until the manager withdraws it.
func interruptionOf(now time.Time, t *robotv1.Task) (order *wire.Interruption, due bool) {
	if t == nil || t.DeletionTimestamp != nil || !t.Status.IsInterruption() {
		return nil, true
	}
	until := t.Status.Interruption.Until
	if until == nil {
		return &wire.Interruption{}, true
	}
	// Measured for each message: the absolute time is of no use to a robot whose clock may be wrong.
	left := int64(until.Sub(now) / time.Second)
	return &wire.Interruption{WindowSeconds: min(left, wire.MaxWindowSeconds)}, left > 0
}

// dispatchExpiry returns for how many seconds the broker keeps a dispatch. It drops an order before the
// maintenance window ends, because a robot measures the rest of the window from the receipt.
func dispatchExpiry(now time.Time, t *robotv1.Task) *uint32 {
	order, _ := interruptionOf(now, t)
	if order == nil {
		return wire.KindDispatch.MessageExpiry()
	}
	return expiryWithin(wire.KindDispatch, order.WindowSeconds)
}

// expiryWithin returns for how many seconds the broker keeps a message that is of use only for so long. 0: no limit.
func expiryWithin(k wire.Kind, seconds int64) *uint32 {
	expiry := k.MessageExpiry()
	if seconds <= 0 || expiry == nil || seconds >= int64(*expiry) {
		return expiry
	}
	return new(uint32(seconds))
}

// recordRefusal records in the status that the robot refuses an order. The manager then withdraws it.
func recordRefusal(s *robotv1.TaskStatus, r report) {
	if r.Refused != "" && !r.IsTerminal() && s.IsInterruption() && r.attempt == s.Attempt {
		s.Interruption.Refusal = r.Refused
	}
}
