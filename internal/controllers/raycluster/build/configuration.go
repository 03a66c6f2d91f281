package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"sigs.k8s.io/yaml"
)

// Configure reads a file of config.ray.io/v1alpha1, kind Configuration, into s. It returns the
// other fields by name: flags of the operator, which the caller handles, and unknown fields.
func (s *Settings) Configure(file []byte) (rest map[string]json.RawMessage, err error) {
	if err := yaml.UnmarshalStrict(file, &rest); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var apiVersion, kind string
	for name, into := range map[string]any{
		"apiVersion": &apiVersion, "kind": &kind,
		"headSidecarContainers": &s.HeadSidecars, "workerSidecarContainers": &s.WorkerSidecars,
		"defaultContainerEnvs": &s.Env, "defaultPodAnnotations": &s.Annotations, "defaultPodLabels": &s.Labels,
	} {
		if err := decodeField(rest[name], into); err != nil {
			return nil, fmt.Errorf("configuration: %s: %w", name, err)
		}
		delete(rest, name)
	}
	if apiVersion != "config.ray.io/v1alpha1" || kind != "Configuration" {
		return nil, fmt.Errorf("configuration: apiVersion %q and kind %q are not supported; use config.ray.io/v1alpha1 and Configuration", apiVersion, kind)
	}
	return rest, nil
}

// decodeField decodes a field. YAML reads an unquoted y, no or 1 as a boolean or number, which must
// not become a label "true": the Pods would have another value than the file.
func decodeField(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Type.Kind() == reflect.String {
		return fmt.Errorf("found a %s where text is needed; write it in quotes: %w", mismatch.Value, err)
	}
	return err
}
