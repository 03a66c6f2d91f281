package crds

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// schemaOf returns the schema of the version that is stored, which is the one that we read. It is
// part of the definition: a copy of a schema takes longer than a comparison.
func schemaOf(crd *unstructured.Unstructured) map[string]any {
	found, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	versions, _ := found.([]any)
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true {
			s, _, _ := unstructured.NestedFieldNoCopy(v, "schema", "openAPIV3Schema")
			found, _ := s.(map[string]any)
			return found
		}
	}
	return nil
}

// missingPaths returns the sorted paths of fields in ours that theirs would drop; of nested ones
// only the outermost.
func missingPaths(ours, theirs map[string]any) []string {
	if theirs["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	var all []string
	mine, _ := ours["properties"].(map[string]any)
	other, _ := theirs["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		has, ok := other[name].(map[string]any)
		if !ok {
			all = append(all, name)
			continue
		}
		field, _ := mine[name].(map[string]any)
		for _, path := range missingPaths(field, has) {
			all = append(all, name+path)
		}
	}
	for i, path := range all {
		all[i] = "." + strings.TrimPrefix(path, ".")
	}
	for _, inner := range []struct{ field, mark string }{{"items", "[]"}, {"additionalProperties", ".*"}} {
		mine, ok := ours[inner.field].(map[string]any)
		other, also := theirs[inner.field].(map[string]any)
		if ok && also {
			for _, path := range missingPaths(mine, other) {
				all = append(all, inner.mark+path)
			}
		}
	}
	return all
}
