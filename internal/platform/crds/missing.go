package definition

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// schema of the version that we serve, as the definition has it.
func schema(crd *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["name"] == "v1alpha1" {
			s, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
			return s
		}
	}
	return nil
}

// missing are the paths of fields in ours that theirs would drop, the outermost
// of each, sorted.
func missing(ours, theirs map[string]any) []string {
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
		for _, path := range missing(field, has) {
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
			for _, path := range missing(mine, other) {
				all = append(all, inner.mark+path)
			}
		}
	}
	return all
}
