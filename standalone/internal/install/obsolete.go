package install

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/platform/crds"
)

// deleteObsolete deletes the admission policies of other versions that this version does not have,
// their bindings first.
func (m *Manifests) deleteObsolete(ctx context.Context) error {
	ours, err := crds.ReadPolicyNames(m.files)
	if err != nil {
		return err
	}
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		var all unstructured.UnstructuredList
		all.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind + "List"})
		err := m.client.List(ctx, &all)
		if meta.IsNoMatchError(err) {
			continue // an older API server has none
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind, err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			if !crds.IsObsoletePolicy(ours, o) {
				continue
			}
			if err := m.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete %s %s of another version: %w", kind, o.GetName(), err)
			}
			m.report(fmt.Sprintf("deleted %s %s, which was installed by another version of K8s4r", kind, o.GetName()))
		}
	}
	return nil
}
