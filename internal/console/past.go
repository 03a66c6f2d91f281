package console

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
)

// findPastScope returns the namespaces whose archived objects the caller may see, or nil for all:
// those of sees that exist now. The owner of a namespace does not see the history of an earlier one
// of that name. Callers with the permission in all namespaces see it.
func (s *Server) findPastScope(ctx context.Context, verb string, k row.Kind, sees scope) ([]archive.Namespace, error) {
	all, err := sees.all, error(nil)
	if !all {
		all, err = s.isAllowed(ctx, verb, k, "", "")
	}
	if err != nil || all {
		return nil, err
	}
	return s.readNamespaces(ctx, sees.names)
}

// readNamespaces returns those of the namespaces that exist. It reads past all caches, which may
// still have an earlier namespace.
func (s *Server) readNamespaces(ctx context.Context, names []string) ([]archive.Namespace, error) {
	found := []archive.Namespace{}
	if len(names) == 0 {
		return found, nil
	}
	var opts []client.ListOption
	if len(names) == 1 {
		opts = append(opts, client.MatchingFields{metav1.ObjectNameField: names[0]})
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := s.live.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range list.Items {
		if n := &list.Items[i]; slices.Contains(names, n.Name) {
			found = append(found, archive.Namespace{Name: n.Name, UID: string(n.UID)})
		}
	}
	return found, nil
}

// canSeePast reports whether an archived object is in the scope of findPastScope.
func canSeePast(namespaces []archive.Namespace, o *archive.Object) bool {
	return namespaces == nil || slices.Contains(namespaces, archive.Namespace{Name: o.Namespace, UID: o.NamespaceUID})
}
