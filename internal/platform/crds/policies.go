package definition

import (
	"io/fs"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager applies what K8s4r installs, the same in every version, so that a field
// which a newer one no longer sets goes.
const FieldManager = "k8s4r"

// Policies are the names of our admission policies, each of which its binding has too,
// in the manifests of config/.
func Policies(files fs.FS) (map[string]bool, error) {
	objects, err := Manifests(files, "admission/*.yaml")
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, o := range objects {
		ours[o.GetName()] = true
	}
	return ours, nil
}

// Outlived tells whether a policy, or a binding, was applied by another version of
// K8s4r and is none of ours: it would go on to refuse what this version allows.
func Outlived(ours map[string]bool, o metav1.Object) bool {
	return !ours[o.GetName()] && slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}
