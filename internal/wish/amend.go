package wish

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxTries bounds how often a change is judged anew because somebody else was
// faster. The manager writes to a busy job about once a second.
const maxTries = 5

// ErrBusy means that others wrote each time before the wish could be.
var ErrBusy = errors.New("it changes faster than it can be written; try again")

// Amend reads an object, lets judge change its spec, and writes it. It returns the object and
// what judge said of it. What is the object in words, such as job demo.
//
// The write holds only for what judge has seen: a job that ends in between is
// judged again. It is a patch, because an update would wipe out the fields that
// a newer cluster has and this program does not know.
func Amend[T client.Object](ctx context.Context, c client.Writer, what string, read func() (T, error), judge func(T) (string, error), opts ...client.PatchOption) (T, string, error) {
	var none T
	for range maxTries {
		obj, err := read()
		if err != nil {
			return none, "", err
		}
		if obj.GetDeletionTimestamp() != nil {
			return none, "", fmt.Errorf("%s is being deleted", what)
		}
		seen := obj.DeepCopyObject().(T)
		said, err := judge(obj)
		if err != nil || reflect.DeepEqual(seen, obj) {
			return obj, said, err
		}
		err = c.Patch(ctx, obj, client.MergeFromWithOptions(seen, client.MergeFromWithOptimisticLock{}), opts...)
		if !apierrors.IsConflict(err) {
			return obj, said, err
		}
	}
	return none, "", fmt.Errorf("change %s: %w", what, ErrBusy)
}
