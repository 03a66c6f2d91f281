package manager

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"k8s4r.io/k8s4r/config"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestRolesOf(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []string
		want string
	}{
		{"by default all", nil, "robots flows vcjob raycluster"},
		{"beside Volcano and KubeRay", []string{"*", "-vcjob", "-raycluster"}, "robots flows"},
		{"one controller of a feature", []string{"cronjobflow"}, "flows"},
		{"a Deployment for one feature", []string{"raycluster", "archive"}, "raycluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.ReplaceAll(strings.Join(RolesOf(c.in), " "), CommonRole+"-", "")
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Every controller but archive and retention, which read and delete what the others do, belongs to a
// role that config/rbac has.
func TestFeatures_CoverControllersAndRoles(t *testing.T) {
	var covered, roles []string
	for _, f := range features {
		covered = append(covered, f.controllers...)
		roles = append(roles, f.role)
	}
	for _, name := range Names {
		if n := len(slices.DeleteFunc(slices.Clone(covered), func(c string) bool { return c != name })); n != 1 && name != "archive" && name != "retention" {
			t.Errorf("controller %s is in %d features", name, n)
		}
	}
	var installed []string
	for _, role := range readManagerRoles(t) {
		installed = append(installed, role.Name)
	}
	want := append([]string{CommonRole}, roles...)
	slices.Sort(want)
	slices.Sort(installed)
	if !slices.Equal(installed, want) {
		t.Errorf("config/rbac has %v, want %v", installed, want)
	}
}

// Secrets are read by name: a list or watch would hand all of them to the manager's Pod.
func TestRoles_DoNotListSecrets(t *testing.T) {
	allowed := map[string][]string{
		CommonRole + "-raycluster": {"get", "create"}, // tokens of clusters
		CommonRole + "-vcjob":      {"get", "create"}, // keys of ssh
	}
	for _, role := range readManagerRoles(t) {
		for _, rule := range role.Rules {
			if !slices.Contains(rule.Resources, "secrets") {
				continue
			}
			for _, verb := range rule.Verbs {
				if !slices.Contains(allowed[role.Name], verb) {
					t.Errorf("%s may %s secrets", role.Name, verb)
				}
			}
		}
	}
}

// readManagerRoles returns the ClusterRoles of the manager in config/rbac.
func readManagerRoles(t *testing.T) []rbacv1.ClusterRole {
	t.Helper()
	files, err := fs.Glob(config.FS, "rbac/manager*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []rbacv1.ClusterRole
	for _, file := range files {
		text, err := fs.ReadFile(config.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			var role rbacv1.ClusterRole
			if err := docs.Decode(&role); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if role.Kind == "ClusterRole" {
				all = append(all, role)
			}
		}
	}
	return all
}

func TestRoleAdvice_NamesMissingRoles(t *testing.T) {
	bound, asked := false, 0
	c := fakeapi.NewBuilder(NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			asked++
			review.Status.Allowed = bound || review.Spec.ResourceAttributes.Resource != "rayclusters"
			return nil
		},
	}).Build()
	check := newRoleAdvice(c, Config{Controllers: []string{"robot", "raycluster"}})
	want := "bind the ClusterRole k8s4r-manager-raycluster to its service account, or exclude the controllers with --controllers=*,-raycluster"
	if _, err := check(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "robots") {
		t.Errorf("%v, want %s", err, want)
	}
	bound = true
	for range 2 {
		if _, err := check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if asked != 4 {
		t.Errorf("it asked %d times", asked)
	}
}
