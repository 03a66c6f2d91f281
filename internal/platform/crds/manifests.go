package crds

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// ReadManifests reads the objects in the files that match the patterns, in the order of the
// patterns and then of file names. The files have the layout of the directory config/.
func ReadManifests(files fs.FS, patterns ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, pattern := range patterns {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			return nil, fmt.Errorf("manifests: %w", err)
		}
		for _, name := range names {
			more, err := readManifest(files, name)
			if err != nil {
				return nil, fmt.Errorf("manifest %s: %w", path.Base(name), err)
			}
			objects = append(objects, more...)
		}
	}
	return objects, nil
}

func readManifest(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var objects []*unstructured.Unstructured
	for documents := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		o := &unstructured.Unstructured{}
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 { // a document may be nothing but a comment
			objects = append(objects, o)
		}
	}
}
