package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// renderFields adds one page for each served version of each CustomResourceDefinition.
func renderFields(root string, pages map[string]string) error {
	files, err := filepath.Glob(filepath.Join(root, "config/crd/*_*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("config/crd: found %d definitions: %w", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, v := range crd.Spec.Versions {
			if v.Storage && v.Schema != nil { // an older version has the same fields
				pages["fields/"+crd.Name+".md"] = renderKind(&crd, &v)
			}
		}
	}
	return nil
}

// handwrittenPages maps the plural and group of a kind to its page in docs/reference/kinds.
var handwrittenPages = map[string]string{
	"jobs.robot.k8s4r.io":               "job",
	"taskgroups.robot.k8s4r.io":         "taskgroup",
	"tasks.robot.k8s4r.io":              "task",
	"robots.robot.k8s4r.io":             "robot",
	"heartbeatslices.robot.k8s4r.io":    "robot",
	"rollouts.robot.k8s4r.io":           "rollout",
	"maintenancewindows.robot.k8s4r.io": "maintenancewindow",
	"jobtemplates.robot.k8s4r.io":       "jobtemplate",
	"jobflows.flow.volcano.sh":          "jobflow",
	"jobtemplates.flow.volcano.sh":      "jobflow",
	"cronjobflows.flow.k8s4r.io":        "cronjobflow",
	"jobs.batch.volcano.sh":             "vcjob",
	"commands.bus.volcano.sh":           "vcjob",
	"rayclusters.ray.io":                "raycluster",
}

func renderKind(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	names := crd.Spec.Names
	p := newPage("Fields of " + names.Kind + " (" + crd.Spec.Group + ")")
	p.addLine("\n`apiVersion: %s/%s`, `kind: %s`.", crd.Spec.Group, v.Name, names.Kind)
	if names := append(slices.Clone(names.ShortNames), names.Plural); len(names) > 0 {
		p.addLine("In kubectl: `%s`.", strings.Join(names, "`, `"))
	}
	if page := handwrittenPages[crd.Name]; page != "" {
		p.addLine("What the fields do together is on [the page of the kind](../kinds/%s.md).", page)
	}
	p.addLine("\nAn asterisk marks required fields.")
	for _, part := range slices.Sorted(maps.Keys(v.Schema.OpenAPIV3Schema.Properties)) {
		schema := v.Schema.OpenAPIV3Schema.Properties[part]
		if part == "apiVersion" || part == "kind" || part == "metadata" {
			continue
		}
		p.addLine("\n## %s", part)
		nested, suffix := elementOf(&schema)
		if len(schema.Properties) == 0 {
			p.addTable("type", "meaning")
			p.addRow(describeType(&schema), schema.Description)
		}
		if len(nested.Properties) == 0 {
			continue
		}
		p.addTable("field", "type", "default", "meaning")
		prefix := ""
		if suffix != "" {
			prefix = part + suffix + "."
		}
		addProperties(p, prefix, nested)
	}
	return p.String()
}

// addProperties adds a row for each field below a schema, parents before children.
func addProperties(p *page, prefix string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		label := "`" + prefix + name + "`"
		if slices.Contains(schema.Required, name) {
			label += " *"
		}
		p.addRow(label, describeType(&field), formatCode(formatJSON(field.Default)), field.Description)
		if nested, suffix := elementOf(&field); kubernetesType(nested) == "" {
			addProperties(p, prefix+name+suffix+".", nested)
		}
	}
}

// elementOf returns the schema of the elements of a list or map with the suffix of their path, or
// the schema itself.
func elementOf(s *apiextensionsv1.JSONSchemaProps) (*apiextensionsv1.JSONSchemaProps, string) {
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		return s.Items.Schema, "[]"
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return s.AdditionalProperties.Schema, ".*"
	}
	return s, ""
}

// describeType returns the type of a field for people, with its values if they are listed.
func describeType(s *apiextensionsv1.JSONSchemaProps) string {
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i := range s.Enum {
			values[i] = formatCode(cmp.Or(formatJSON(&s.Enum[i]), `""`))
		}
		return strings.Join(values, ", ")
	}
	if known := kubernetesType(s); known != "" {
		return known
	}
	nested, _ := elementOf(s)
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "array":
		return "list of " + describeType(nested)
	case s.Type == "object" && nested != s:
		return "map to " + describeType(nested)
	}
	if s.Format != "" && s.Type == "string" {
		return s.Format
	}
	return cmp.Or(s.Type, "any")
}

// kubernetesTypes are types of Kubernetes by fields that only they have. Their own fields are in
// the documentation of Kubernetes.
var kubernetesTypes = []struct {
	name   string
	fields []string
}{
	{"PodSpec", []string{"containers", "nodeSelector"}},
	{"PodTemplateSpec", []string{"metadata", "spec"}},
	{"Container", []string{"image", "volumeMounts", "command"}},
	{"EnvVarSource", []string{"configMapKeyRef", "secretKeyRef"}},
	{"EnvVar", []string{"name", "value", "valueFrom"}},
	{"EnvFromSource", []string{"configMapRef", "secretRef"}},
	{"ResourceRequirements", []string{"limits", "requests"}},
	{"SecurityContext", []string{"runAsUser", "privileged"}},
	{"VolumeMount", []string{"mountPath", "name"}},
	{"PersistentVolumeClaimSpec", []string{"accessModes", "volumeName"}},
	{"NetworkPolicyIngressRule", []string{"from", "ports"}},
	{"NetworkPolicyEgressRule", []string{"to", "ports"}},
	{"Service", []string{"metadata", "spec", "status"}},
	{"Condition", []string{"lastTransitionTime", "reason", "status", "type"}},
	{"Toleration", []string{"tolerationSeconds", "operator"}},
}

// kubernetesType returns the name of the type of Kubernetes that a schema is, or nothing.
func kubernetesType(s *apiextensionsv1.JSONSchemaProps) string {
	for _, known := range kubernetesTypes {
		has := func(field string) bool { _, ok := s.Properties[field]; return ok }
		if !slices.ContainsFunc(known.fields, func(f string) bool { return !has(f) }) {
			return known.name
		}
	}
	return ""
}

// formatJSON returns a default or listed value without quotes. If nil, it is empty.
func formatJSON(value *apiextensionsv1.JSON) string {
	if value == nil {
		return ""
	}
	var text string
	if json.Unmarshal(value.Raw, &text) == nil {
		return text
	}
	return string(value.Raw)
}
