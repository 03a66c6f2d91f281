package crds

import (
	"io/fs"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager applies what K8s4r installs. It is the same in every version, so that fields that
// a newer version no longer sets are removed.
const FieldManager = "k8s4r"

// ReadPolicyNames returns the names of our admission policies, which are also those of their
// bindings, from the manifests of config/.
func ReadPolicyNames(files fs.FS) (map[string]bool, error) {
	objects, err := ReadManifests(files, "admission/*.yaml", "defaults/*.yaml")
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, o := range objects {
		ours[o.GetName()] = true
	}
	return ours, nil
}

// IsObsoletePolicy reports whether a policy or a binding was applied by another version of K8s4r
// and is not one of ours: it might reject what this version allows.
func IsObsoletePolicy(ours map[string]bool, o metav1.Object) bool {
	return !ours[o.GetName()] && slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}
