package cli

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/wish"
)

// amend reads the object with exactly this name, lets judge change its spec,
// and writes it. It returns the object and what judge said of it.
func amend[T client.Object](ctx context.Context, c *cluster, k kind, name string, judge func(T) (string, error)) (T, string, error) {
	what := k.singular + " " + name
	read := func() (T, error) { return readNamed[T](ctx, c, k, name) }
	return wish.Amend(ctx, writer{c, what}, what, read, judge)
}

// writer says of which change an error is.
type writer struct {
	client.Writer
	what string
}

// Patch writes a change.
func (w writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	err := w.Writer.Patch(ctx, obj, patch, opts...)
	if apierrors.IsConflict(err) {
		return err
	}
	return wrap(err, "change %s", w.what)
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
