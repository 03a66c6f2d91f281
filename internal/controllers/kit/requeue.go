package kit

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// RequeueAt returns a result that reconciles again at that time, or at once if it
// has passed. The zero time waits for the next watch event.
func RequeueAt(at, now time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	// A RequeueAfter of zero means never.
	return reconcile.Result{RequeueAfter: max(at.Sub(now), time.Millisecond)}
}

// SetEarliest lowers *t to at if at is earlier or *t is unset.
func SetEarliest(t *time.Time, at time.Time) {
	if t.IsZero() || at.Before(*t) {
		*t = at
	}
}
