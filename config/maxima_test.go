package config

import (
	"io/fs"
	"path"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kubernetesFields hold objects of Kubernetes, whose numbers the API server checks when it gets them.
var kubernetesFields = []string{"template", "volumeClaim", "headService", "securityContext", "env", "envFrom", "volumeMounts", "metadata", "ingressRules", "egressRules"}

// TestCRDs_NumbersHaveMaxima finds numbers of a spec that a user can raise without a bound.
func TestCRDs_NumbersHaveMaxima(t *testing.T) {
	files, err := fs.Glob(FS, "crd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := FS.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			for _, field := range unboundedNumbers("spec", &spec) {
				t.Errorf("%s: %s has no maximum", path.Base(file), field)
			}
		}
	}
}

// unboundedNumbers returns the paths of integers without a maximum.
func unboundedNumbers(at string, schema *apiextensionsv1.JSONSchemaProps) (all []string) {
	if schema.Type == "integer" && schema.Maximum == nil {
		all = append(all, at)
	}
	for name, field := range schema.Properties {
		if !slices.Contains(kubernetesFields, name) {
			all = append(all, unboundedNumbers(at+"."+name, &field)...)
		}
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		all = append(all, unboundedNumbers(at+"[]", schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		all = append(all, unboundedNumbers(at+"{}", schema.AdditionalProperties.Schema)...)
	}
	return all
}
