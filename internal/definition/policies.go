package definition

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// FieldManager applies what K8s4r installs, the same in every version, so that a field
// which a newer one no longer sets goes.
const FieldManager = "k8s4r"

// Policies are the names of our admission policies, each of which its binding has too,
// in the manifests of config/.
func Policies(files fs.FS) (map[string]bool, error) {
	names, err := fs.Glob(files, "admission/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	ours := map[string]bool{}
	for _, name := range names {
		if err := named(files, name, ours); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", path.Base(name), err)
		}
	}
	return ours, nil
}

func named(files fs.FS, name string, ours map[string]bool) error {
	f, err := files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for documents := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o metav1.PartialObjectMetadata
		err := documents.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if o.Name != "" {
			ours[o.Name] = true
		}
	}
}

// Outlived tells whether a policy, or a binding, was applied by another version of
// K8s4r and is none of ours: it would go on to refuse what this version allows.
func Outlived(ours map[string]bool, o metav1.Object) bool {
	return !ours[o.GetName()] && slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}
