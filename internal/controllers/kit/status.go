package kit

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UpdateStatus writes the status of an object and reports whether that succeeded. A
// conflict or a deleted object is not an error: the watch triggers the next reconcile.
func (s *Expectations) UpdateStatus(ctx context.Context, c client.StatusClient, o client.Object) (written bool, err error) {
	err = c.Status().Update(ctx, o)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("update status of %s: %w", o.GetName(), err)
	}
	s.RecordWrite(o.GetUID(), o.GetResourceVersion())
	return true, nil
}
