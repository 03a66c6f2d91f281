package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Output formats.
const (
	outputJSON = "json"
	outputYAML = "yaml"
	outputName = "name"
	outputWide = "wide"
)

func checkFormat(format string, allowed ...string) error {
	return errorUnless(format == "" || slices.Contains(allowed, format),
		"--output=%s: must be %s", format, strings.Join(allowed, ", "))
}

// setKind sets the object's apiVersion and kind, which the client leaves empty.
func setKind(o client.Object, k kind) {
	o.GetObjectKind().SetGroupVersionKind(k.version.WithKind(k.kind))
}

// writeObject prints one object as json, yaml or name.
func writeObject(w io.Writer, format string, k kind, o client.Object) error {
	if format == outputName {
		_, err := fmt.Fprintln(w, k.formatRef(o.GetName()))
		return err
	}
	setKind(o, k)
	o.SetManagedFields(nil) // omitted by default, as in kubectl
	return encodeObject(w, format, o)
}

// objectList is a List as kubectl prints and reads it.
type objectList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []client.Object   `json:"items"`
	Metadata   map[string]string `json:"metadata"`
}

// writeList prints the objects of all sets as a List or as names.
func writeList(w io.Writer, format string, sets []objectSet) error {
	list := objectList{APIVersion: "v1", Kind: "List", Items: []client.Object{}, Metadata: map[string]string{}}
	for _, set := range sets {
		for _, o := range set.objects {
			if format == outputName {
				fmt.Fprintln(w, set.kind.formatRef(o.GetName()))
				continue
			}
			setKind(o, set.kind)
			o.SetManagedFields(nil)
			list.Items = append(list.Items, o)
		}
	}
	if format == outputName {
		return nil
	}
	return encodeObject(w, format, list)
}

func encodeObject(w io.Writer, format string, v any) error {
	data, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if format == outputYAML {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimRight(string(data), "\n"))
	return err
}
