// Package crds compares the CustomResourceDefinitions of a cluster with ours. Some of our kinds
// are also defined by another operator; its definition is kept if it was installed first.
package crds

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// AnnotationOnlyWith names, on an object, the definition without which the object is not
// installed. If another operator defines the kind, the rules about it are not installed either.
const AnnotationOnlyWith = "k8s4r.io/only-with-crd"

// labelPartOf is k8s4r on definitions of kinds that another operator defines as well.
const labelPartOf = "app.kubernetes.io/part-of"

// IsCRD reports whether an object is a CustomResourceDefinition.
func IsCRD(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" }

// IsShared reports whether another operator defines the kind of this definition as well.
func IsShared(ours *unstructured.Unstructured) bool { return ours.GetLabels()[labelPartOf] != "" }

// IsForeign reports whether a definition in the cluster is another operator's. Kinds of our own
// groups have no other one.
func IsForeign(ours, is *unstructured.Unstructured) bool {
	return IsShared(ours) && is.GetLabels()[labelPartOf] != ours.GetLabels()[labelPartOf]
}

// IsEstablished reports whether the API server serves the kind.
func IsEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == "Established" && condition["status"] == "True"
	})
}

// ReadCRDs reads our definitions from the manifests of config/, sorted by file name.
func ReadCRDs(files fs.FS) ([]*unstructured.Unstructured, error) {
	return ReadManifests(files, "crd/*.yaml")
}

// MissingFields returns the sorted paths of fields that ours has and the other definition drops;
// of nested ones only the outermost.
func MissingFields(ours, is *unstructured.Unstructured) []string {
	return slices.DeleteFunc(missingPaths(schemaOf(ours), schemaOf(is)), func(path string) bool {
		return path == ".apiVersion" || path == ".kind" || path == ".metadata" // every object has them
	})
}

// DescribeMissing returns the end of a sentence about missing fields. It names up to 12.
func DescribeMissing(lacks []string) string {
	const most = 12
	if len(lacks) == 0 {
		return "its schema has all fields that K8s4r reads"
	}
	more := ""
	if len(lacks) > most {
		more = fmt.Sprintf(" and %d more", len(lacks)-most)
		lacks = lacks[:most]
	}
	return "its schema lacks these fields, which are dropped: " + strings.Join(lacks, ", ") + more
}
