package install

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/definition"
)

// foreign finds the definitions that somebody else has installed under the names
// of ours. They stay as they are: their objects, and the programs that read
// them, may need what ours lacks.
func (m *Manifests) foreign(ctx context.Context, objects []*unstructured.Unstructured) (map[string]bool, error) {
	all := map[string]bool{}
	for _, ours := range objects {
		if !definition.Is(ours) || !definition.Shared(ours) {
			continue
		}
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(ours.GroupVersionKind())
		err := m.client.Get(ctx, client.ObjectKeyFromObject(ours), is)
		if apierrors.IsNotFound(err) || err == nil && !definition.Foreign(ours, is) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", ours.GetName(), err)
		}
		all[ours.GetName()] = true
		m.say(fmt.Sprintf("definition %s was installed by somebody else and is left as it is; %s", ours.GetName(), definition.Dropped(definition.Lacks(ours, is))))
	}
	return all, nil
}
