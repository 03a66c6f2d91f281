package cli

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

// amend reads the object with exactly this name, lets judge change its spec,
// and writes it. It returns the object and what judge said of it.
//
// The write holds only for what judge has seen: a job that ends in between is
// judged again. It is a patch, because an update would wipe out the fields that
// a newer cluster has and this program does not know.
func amend[T client.Object](ctx context.Context, c *cluster, k kind, name string, judge func(T) (string, error)) (T, string, error) {
	var none T
	for range maxTries {
		obj, err := readNamed[T](ctx, c, k, name)
		if err != nil {
			return none, "", err
		}
		if obj.GetDeletionTimestamp() != nil {
			return none, "", fmt.Errorf("%s %s is being deleted", k.singular, name)
		}
		seen := obj.DeepCopyObject().(T)
		said, err := judge(obj)
		if err != nil || reflect.DeepEqual(seen, obj) {
			return obj, said, err
		}
		err = c.Patch(ctx, obj, client.MergeFromWithOptions(seen, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) {
			return obj, said, wrap(err, "change %s %s", k.singular, name)
		}
	}
	return none, "", fmt.Errorf("change %s %s: %w", k.singular, name, errBusy)
}

// readNamed reads the object with the whole name. What is changed or deleted is
// not guessed from the beginning of a name.
func readNamed[T client.Object](ctx context.Context, c *cluster, k kind, name string) (T, error) {
	obj := k.newObject().(T)
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) && !isMissingKind(err) {
		return obj, fmt.Errorf("there is no %s %q in namespace %s", k.singular, name, c.namespace)
	}
	return obj, wrap(err, "get %s %s", k.singular, name)
}

// each does the same to every name, and goes on past one that fails: the others
// were asked for as well. Without an API server there is nothing to go on to.
func each(c *cluster, names []string, do func(name string) error) error {
	var errs []error
	for _, name := range names {
		err := markUnreachable(c.server, do(name))
		errs = append(errs, err)
		if _, gone := errors.AsType[*unreachableError](err); gone {
			break
		}
	}
	return errors.Join(errs...)
}

var errBusy = errors.New("it changes faster than it can be written; try again")
