// Package wake turns the time that a plan names into what a controller is to
// return.
package wake

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// At asks for another look at that time, or at once when it has passed. Zero: a
// watch will wake us.
func At(at, now time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	// Zero would mean never.
	return reconcile.Result{RequeueAfter: max(at.Sub(now), time.Millisecond)}
}
