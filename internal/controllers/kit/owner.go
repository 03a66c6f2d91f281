package kit

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadExisting reads the object with the name of o into o and reports whether owner
// controls it. Controllers call it after a create failed with AlreadyExists: an owned
// object was created before the cache showed it and counts as success. The reader
// must bypass the cache.
func ReadExisting(ctx context.Context, live client.Reader, owner metav1.Object, o client.Object) (owned bool, err error) {
	name := o.GetName()
	if err := live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return false, fmt.Errorf("get %T %s: %w", o, name, err)
	}
	return metav1.IsControlledBy(o, owner), nil
}

// ControllerUIDs returns a cache index that finds objects by the UID of their
// controller, for controllers of the given kind.
func ControllerUIDs(kind string) client.IndexerFunc {
	return func(o client.Object) []string {
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == kind {
			return []string{string(owner.UID)}
		}
		return nil
	}
}
