package planapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/config"
)

// jobSchema returns the schema of Jobs that this version installs.
var jobSchema = sync.OnceValues(func() (*apiextensionsv1.JSONSchemaProps, error) {
	data, err := config.FS.ReadFile("crd/robot.k8s4r.io_jobs.yaml")
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		return nil, fmt.Errorf("decode the definition of Jobs: %w", err)
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Name == v1alpha1.GroupVersion.Version {
			return v.Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, fmt.Errorf("the definition of Jobs has no version %s", v1alpha1.GroupVersion.Version)
})

// checkBounds returns an error that names the first field which exceeds a bound of its schema: numbers, lengths,
// items, and required fields. at is the path of the value. Patterns, enums and rules in CEL are not checked,
// because they bound no work; the API server checks them in the dry run before a plan, and when the object is applied.
func checkBounds(at string, s *apiextensionsv1.JSONSchemaProps, value any) error {
	switch v := value.(type) {
	case map[string]any:
		return checkFields(at, s, v)
	case []any:
		return checkItems(at, s, v)
	case string:
		return checkLength(at, "characters", s.MinLength, s.MaxLength, utf8.RuneCountInString(v))
	case int64:
		return checkNumber(at, s, float64(v))
	case float64:
		return checkNumber(at, s, v)
	}
	return nil
}

func checkFields(at string, s *apiextensionsv1.JSONSchemaProps, fields map[string]any) error {
	if err := checkLength(at, "fields", s.MinProperties, s.MaxProperties, len(fields)); err != nil {
		return err
	}
	for _, name := range s.Required {
		if fields[name] == nil && s.Properties[name].Default == nil {
			return fmt.Errorf("%s: must be set", fieldPath(at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		p, known := s.Properties[name]
		switch {
		case known:
		case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
			p = *s.AdditionalProperties.Schema
		default:
			continue // dropped when the Job is decoded
		}
		if err := checkBounds(fieldPath(at, name), &p, fields[name]); err != nil {
			return err
		}
	}
	return nil
}

func fieldPath(at, name string) string {
	if at == "" {
		return name
	}
	return fmt.Sprintf("%s.%.253s", at, name)
}

func checkItems(at string, s *apiextensionsv1.JSONSchemaProps, items []any) error {
	if err := checkLength(at, "items", s.MinItems, s.MaxItems, len(items)); err != nil {
		return err
	}
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	for i := range items {
		if err := checkBounds(at+"["+strconv.Itoa(i)+"]", s.Items.Schema, items[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkLength(at, unit string, least, most *int64, n int) error {
	switch {
	case most != nil && int64(n) > *most:
		return fmt.Errorf("%s: must have at most %d %s, not %d", at, *most, unit, n)
	case least != nil && int64(n) < *least:
		return fmt.Errorf("%s: must have at least %d %s, not %d", at, *least, unit, n)
	}
	return nil
}

func checkNumber(at string, s *apiextensionsv1.JSONSchemaProps, n float64) error {
	switch {
	case s.Maximum != nil && n > *s.Maximum:
		return fmt.Errorf("%s: must be at most %.0f", at, *s.Maximum)
	case s.Minimum != nil && n < *s.Minimum:
		return fmt.Errorf("%s: must be at least %.0f", at, *s.Minimum)
	}
	return nil
}
