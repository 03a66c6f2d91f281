package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Rights are listed one by one, so that no role gets a later kind or verb by accident.
func TestRoles_HaveNoWildcards(t *testing.T) {
	roles := 0
	err := fs.WalkDir(FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text, err := fs.ReadFile(FS, path)
		if err != nil {
			return err
		}
		for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			var role struct {
				Kind     string
				Metadata struct{ Name string }
				Rules    json.RawMessage // of other kinds it is something else
			}
			if err := docs.Decode(&role); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if role.Kind != "ClusterRole" && role.Kind != "Role" {
				continue
			}
			roles++
			var rules []rbacv1.PolicyRule
			if err := json.Unmarshal(role.Rules, &rules); err != nil {
				return err
			}
			for _, rule := range rules {
				for _, all := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames, rule.NonResourceURLs} {
					if slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "*") }) {
						t.Errorf("%s: %s %s: %v", path, role.Kind, role.Metadata.Name, all)
					}
				}
			}
		}
	})
	if err != nil || roles < 8 {
		t.Errorf("%d roles, %v", roles, err)
	}
}
