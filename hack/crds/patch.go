package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// patchSchema is what a patch may hold: the fields of every kind of Job.
func patchSchema() (object, error) {
	all := object{}
	for _, file := range jobs {
		crd, err := read(file)
		if err != nil {
			return nil, err
		}
		spec, err := specOf(crd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		loosenSchema(spec, nil)
		properties := spec["properties"].(object)
		for name, field := range properties {
			if had, twice := all[name]; twice && fmt.Sprint(had) != fmt.Sprint(field) {
				return nil, fmt.Errorf("%s: spec.%s differs between the kinds of Job", file, name)
			}
		}
		maps.Copy(all, properties)
	}
	return object{"type": "object", "properties": all}, nil
}

// specOf is the schema of a CRD's spec.
func specOf(crd object) (object, error) {
	versions, _ := crd["spec"].(object)["versions"].([]any)
	if len(versions) != 1 {
		return nil, errors.New("not one version")
	}
	root := versions[0].(object)["schema"].(object)["openAPIV3Schema"].(object)
	return root["properties"].(object)["spec"].(object), nil
}

// loosenSchema takes from a schema whatever fills or demands a field. The keys of a list
// whose items are identified by them remain.
func loosenSchema(schema object, keys []string) {
	for _, word := range []string{"description", "default", "minItems", "minProperties", "minLength", "x-kubernetes-validations"} {
		delete(schema, word)
	}
	required, _ := schema["required"].([]any)
	required = slices.DeleteFunc(required, func(f any) bool { return !slices.Contains(keys, f.(string)) })
	if schema["required"] = required; len(required) == 0 {
		delete(schema, "required")
	}
	properties, _ := schema["properties"].(object)
	for name, field := range properties {
		field := field.(object)
		fill, filled := field["default"]
		loosenSchema(field, nil)
		if filled && slices.Contains(keys, name) {
			field["default"] = fill
		}
	}
	if values, ok := schema["additionalProperties"].(object); ok {
		loosenSchema(values, nil)
	}
	if items, ok := schema["items"].(object); ok {
		loosenSchema(items, keysOf(schema))
	}
}

// keysOf returns the fields that identify the items of a list.
func keysOf(list object) []string {
	var keys []string
	names, _ := list["x-kubernetes-list-map-keys"].([]any)
	for _, k := range names {
		keys = append(keys, k.(string))
	}
	return keys
}

// setPatch puts the schema in the place of each patch of a CRD.
func setPatch(crd, schema object) error {
	found := 0
	each(crd, func(o object) {
		patch, _ := o["patch"].(object)
		properties, _ := patch["properties"].(object)
		field, ok := properties["jobSpec"].(object)
		if !ok {
			return
		}
		found++
		properties["jobSpec"] = object{
			"description": field["description"], "type": schema["type"], "properties": schema["properties"],
		}
	})
	if found == 0 {
		return errors.New("no patch.jobSpec")
	}
	return nil
}
