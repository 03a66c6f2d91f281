// Command crds finishes the CRDs that controller-gen has written, where Go types
// cannot say what is meant.
//
// The schema of a Pod keeps no descriptions: with them a CRD is too large for the annotation of
// kubectl apply. That of RayClusters, with two versions, is so without them. An older version that
// clients use is served beside the stored one. The patch of a flow's step gets the schema of both
// kinds of Job less whatever fills or demands a field, so that what a user has not set stays unset.
// And the quantities and ports of Pods are only what can be parsed; those of our own kinds have rules
// with sentences of their own.
//
// The rules of Tasks and TaskGroups become admission policies, which cost nothing at a write of the
// status.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const dir = "config/crd"

// podSchemas are the fields, by CRD, that hold schemas of Kubernetes itself.
var podSchemas = map[string][]string{
	"batch.volcano.sh_jobs.yaml":        {"template", "volumeClaim"},
	"flow.volcano.sh_jobtemplates.yaml": {"template", "volumeClaim"},
	"ray.io_rayclusters.yaml": {
		"template", "headService", "resources", "securityContext", "env", "envFrom", "volumeMounts", "valueFrom", "conditions",
		"ingressRules", "egressRules",
	},
}

// deprecated are the versions, by CRD, that older clients use and older installations may have
// stored. They have the schema of the stored version.
var deprecated = map[string]string{"ray.io_rayclusters.yaml": "v1alpha1"}

// patched are the CRDs whose steps have a patch.
var patched = []string{"flow.volcano.sh_jobflows.yaml", "flow.k8s4r.io_cronjobflows.yaml"}

// jobs are the CRDs of what a patch can change.
var jobs = []string{"batch.volcano.sh_jobs.yaml", "robot.k8s4r.io_jobs.yaml"}

func main() {
	if err := finish(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func finish() error {
	for file, fields := range podSchemas {
		if err := edit(file, func(crd object) error {
			trim(crd, fields)
			narrowQuantities(crd)
			boundIntOrStrings(crd)
			return nil
		}); err != nil {
			return err
		}
	}
	for file, version := range deprecated {
		if err := edit(file, func(crd object) error { return addDeprecated(crd, version) }); err != nil {
			return err
		}
	}
	schema, err := patchSchema()
	if err != nil {
		return err
	}
	for _, file := range patched {
		if err := edit(file, func(crd object) error { return setPatch(crd, schema) }); err != nil {
			return err
		}
	}
	return moveRules()
}

// object is a part of a CRD.
type object = map[string]any

// edit changes a file.
func edit(file string, change func(object) error) error {
	crd, err := read(file)
	if err != nil {
		return err
	}
	if err := change(crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	data, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), append([]byte("---\n"), data...), 0o644)
}

func read(file string) (object, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	var crd object
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return crd, nil
}

// trim drops the descriptions beneath the named fields, wherever those stand.
func trim(node any, fields []string) {
	each(node, func(o object) {
		properties, _ := o["properties"].(object)
		for _, name := range fields {
			field, ok := properties[name].(object)
			if !ok {
				continue
			}
			for part, schema := range field {
				if part != "description" {
					each(schema, undescribe)
				}
			}
		}
	})
}

// addDeprecated adds a version that is served with a warning. Its schema is that of the stored
// version without descriptions, so that no object gets around a check, and objects need no
// conversion.
func addDeprecated(crd object, version string) error {
	spec, _ := crd["spec"].(object)
	versions, ok := spec["versions"].([]any)
	if !ok || len(versions) != 1 {
		return errors.New("spec.versions must have the stored version alone")
	}
	stored, _ := versions[0].(object)
	older, err := copyObject(stored)
	if err != nil {
		return err
	}
	each(older["schema"], undescribe)
	names, _ := spec["names"].(object)
	older["name"], older["storage"], older["deprecated"] = version, false, true
	older["deprecationWarning"] = fmt.Sprintf("%[1]v/%[2]s %[3]v is deprecated; use %[1]v/%[4]v %[3]v", spec["group"], version, names["kind"], stored["name"])
	spec["versions"] = append(versions, older)
	return nil
}

// copyObject returns a deep copy.
func copyObject(o object) (object, error) {
	data, err := yaml.Marshal(o)
	if err != nil {
		return nil, err
	}
	var c object
	return c, yaml.Unmarshal(data, &c)
}

// undescribe drops the description of a schema. A property may be called so too,
// and stays.
func undescribe(o object) {
	if _, text := o["description"].(string); text {
		delete(o, "description")
	}
}

// each calls do on an object and all objects in it, the outer ones first.
func each(node any, do func(object)) {
	switch n := node.(type) {
	case object:
		do(n)
		for _, child := range n {
			each(child, do)
		}
	case []any:
		for _, child := range n {
			each(child, do)
		}
	}
}
