package archive

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/archive"
)

// newNamespace returns an object to read the metadata of a namespace into.
func newNamespace() *metav1.PartialObjectMetadata {
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return n
}

// namespaceUID returns the UID of the namespace of an object. It returns "" if the object was
// deleted and its namespace, too. The error is about a cache that is behind.
func (c *Controller) namespaceUID(ctx context.Context, o client.Object, isDeleted bool) (string, error) {
	n := newNamespace()
	err := c.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, n, client.UnsafeDisableDeepCopy)
	if err != nil && (!isDeleted || !apierrors.IsNotFound(err)) {
		return "", fmt.Errorf("get namespace of %s: %w", o.GetName(), err)
	}
	return uidOfNamespace(n, o)
}

// uidOfNamespace returns the UID of the namespace n unless the object was in an earlier one of that
// name. It returns an error if the object is in a later one.
func uidOfNamespace(n *metav1.PartialObjectMetadata, o client.Object) (string, error) {
	created := o.GetCreationTimestamp()
	switch {
	case n.CreationTimestamp.After(created.Time):
		return "", nil
	case n.DeletionTimestamp != nil && created.After(n.DeletionTimestamp.Time):
		return "", fmt.Errorf("namespace %s: the cache has one that is being deleted, and %s was created later", n.Name, o.GetName())
	}
	return string(n.UID), nil
}

// bindNamespaces binds what an earlier version recorded to the namespaces that still exist.
func (c *Controller) bindNamespaces(ctx context.Context) error {
	names, err := c.Store.ListUnboundNamespaces(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		n := newNamespace()
		if err := c.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		errs = append(errs, c.Store.BindNamespace(ctx, archive.Namespace{Name: name, UID: string(n.UID)}, n.CreationTimestamp.Time))
	}
	return errors.Join(errs...)
}
