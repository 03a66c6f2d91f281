// Package definition compares the definitions of kinds (CRDs) in a cluster with
// ours. Some of our kinds are also somebody else's: whoever installs theirs first,
// theirs stays.
package definition

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// AnnotationOnlyWith names, on an object, the definition without which it is not
// installed: where the kind is somebody else's, so are the rules about it.
const AnnotationOnlyWith = "k8s4r.io/only-with-crd"

// labelPartOf is k8s4r on definitions of kinds that others define as well.
const labelPartOf = "app.kubernetes.io/part-of"

// Is tells whether an object is a definition.
func Is(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" }

// Shared tells whether others define the kind of this definition of ours as well.
func Shared(ours *unstructured.Unstructured) bool { return ours.GetLabels()[labelPartOf] != "" }

// Foreign tells whether a definition of the cluster is somebody else's than ours of
// the same name. Those of our own groups nobody else makes.
func Foreign(ours, is *unstructured.Unstructured) bool {
	return Shared(ours) && is.GetLabels()[labelPartOf] != ours.GetLabels()[labelPartOf]
}

// Established tells whether the API server serves the kind.
func Established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == "Established" && condition["status"] == "True"
	})
}

// All reads our definitions from the manifests of config/, sorted by their files.
func All(files fs.FS) ([]*unstructured.Unstructured, error) {
	return Manifests(files, "crd/*.yaml")
}

// Lacks are the paths of fields that a definition drops and ours has, the outermost
// of each, sorted.
func Lacks(ours, is *unstructured.Unstructured) []string {
	return slices.DeleteFunc(missing(schema(ours), schema(is)), func(path string) bool {
		return path == ".apiVersion" || path == ".kind" || path == ".metadata" // every object has them
	})
}

// Dropped is a sentence's end about fields that are dropped, most of them named.
func Dropped(lacks []string) string {
	const most = 12
	if len(lacks) == 0 {
		return "it has every field that K8s4r reads"
	}
	more := ""
	if len(lacks) > most {
		more = fmt.Sprintf(" and %d more", len(lacks)-most)
		lacks = lacks[:most]
	}
	return "it drops these fields, which then do nothing: " + strings.Join(lacks, ", ") + more
}
