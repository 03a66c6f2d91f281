// Package patch changes objects that others change at the same time: it reads an object,
// lets a pure function decide on the change, and writes only if the object is still the one
// on which was decided.
package patch

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxAttempts bounds how often a change is retried after a conflict. The manager
// writes to a busy job about once a second.
const maxAttempts = 5

// ErrConflicts means that the object was changed before each attempt to write it.
var ErrConflicts = errors.New("the object was changed during each attempt to write it; try again")

// RetryOnConflict reads an object, lets change edit it, and writes it. It returns the object
// and the message of change. The name of the object for errors is such as "job demo". After a
// conflict the object is read and changed again; an object that is being deleted is an error.
//
// It sends a patch: an update would remove the fields that a newer API server has and this
// program does not know.
func RetryOnConflict[T client.Object](ctx context.Context, c client.Writer, name string, read func() (T, error), change func(T) (string, error), opts ...client.PatchOption) (T, string, error) {
	var none T
	for range maxAttempts {
		obj, err := read()
		if err != nil {
			return none, "", err
		}
		if obj.GetDeletionTimestamp() != nil {
			return none, "", fmt.Errorf("%s is being deleted", name)
		}
		before := obj.DeepCopyObject().(T)
		message, err := change(obj)
		if err != nil || reflect.DeepEqual(before, obj) {
			return obj, message, err
		}
		err = c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), opts...)
		if !apierrors.IsConflict(err) {
			return obj, message, err
		}
	}
	return none, "", fmt.Errorf("change %s: %w", name, ErrConflicts)
}
