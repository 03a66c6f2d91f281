package expect

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UpdateStatus writes the status of an object as it was seen, and tells whether
// that is done. When somebody was faster, or the object is gone, it is not, and
// no error: the watch brings what there is to decide anew.
func (s *Set) UpdateStatus(ctx context.Context, c client.StatusClient, o client.Object) (written bool, err error) {
	err = c.Status().Update(ctx, o)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("update status of %s: %w", o.GetName(), err)
	}
	s.Wrote(o.GetUID(), o.GetResourceVersion())
	return true, nil
}
