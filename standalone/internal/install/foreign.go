package install

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/crds"
)

// findForeign returns the CRDs with names of ours that another program has installed. They are not
// changed: their objects, and the programs that read them, may need fields that ours do not have.
func (m *Manifests) findForeign(ctx context.Context, objects []*unstructured.Unstructured) (map[string]bool, error) {
	all := map[string]bool{}
	for _, ours := range objects {
		if !crds.IsCRD(ours) || !crds.IsShared(ours) {
			continue
		}
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(ours.GroupVersionKind())
		err := m.client.Get(ctx, client.ObjectKeyFromObject(ours), is)
		if apierrors.IsNotFound(err) || err == nil && !crds.IsForeign(ours, is) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", ours.GetName(), err)
		}
		all[ours.GetName()] = true
		m.report(fmt.Sprintf("CRD %s was not installed by K8s4r and is left unchanged; %s", ours.GetName(), crds.DescribeMissing(crds.MissingFields(ours, is))))
	}
	return all, nil
}
