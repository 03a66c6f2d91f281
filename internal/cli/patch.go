package cli

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/patch"
)

// patchNamed reads the object named exactly name, lets the callback change its spec, and patches
// it. It returns the object and the callback's text about the change.
func patchNamed[T client.Object](ctx context.Context, c *cluster, k kind, name string, change func(T) (string, error)) (T, string, error) {
	what := k.singular + " " + name
	read := func() (T, error) { return readNamed[T](ctx, c, k, name) }
	return patch.RetryOnConflict(ctx, writer{c, what}, what, read, change)
}

// writer adds the name of the changed object to conflict errors.
type writer struct {
	client.Writer
	what string
}

// Patch patches obj with the wrapped client. A conflict error says which object was being
// changed.
func (w writer) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	err := w.Writer.Patch(ctx, obj, p, opts...)
	if apierrors.IsConflict(err) {
		return err
	}
	return wrapError(err, "change %s", w.what)
}

// readNamed returns the object named exactly name. Commands that change or delete objects do not
// accept name prefixes.
func readNamed[T client.Object](ctx context.Context, c *cluster, k kind, name string) (T, error) {
	obj := k.newObject().(T)
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) && !isMissingKind(err) {
		return obj, fmt.Errorf("%s %q not found in namespace %s", k.singular, name, c.namespace)
	}
	return obj, wrapError(err, "get %s %s", k.singular, name)
}

// forEachName calls do for each name and returns all errors joined. One failed name does not stop
// the others, unless the API server cannot be reached.
func forEachName(c *cluster, names []string, do func(name string) error) error {
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
