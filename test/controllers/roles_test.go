package controllers

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/manager"
)

// right is an action in any namespace, as VERB RESOURCE.GROUP.
type right string

// attributes returns the right as a question to the API server.
func (r right) attributes() *authorizationv1.ResourceAttributes {
	verb, what, _ := strings.Cut(string(r), " ")
	resource, group, _ := strings.Cut(what, ".")
	resource, sub, _ := strings.Cut(resource, "/")
	return &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub}
}

// isAllowed reports whether the user of c has a right in all namespaces.
func isAllowed(t *testing.T, c client.Client, r right) bool {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r.attributes()}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// TestManager_HasRightsOfItsControllersOnly has the rights with which an attacker who controls the
// manager's Pod would reach further than the manager's own objects.
func TestManager_HasRightsOfItsControllersOnly(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig)
	far := []right{
		"create pods", "delete pods", "get secrets", "create secrets", "create serviceaccounts",
		"create roles.rbac.authorization.k8s.io", "create rolebindings.rbac.authorization.k8s.io",
		"create tasks.robot.k8s4r.io", "update tasks/status.robot.k8s4r.io", "use privileges.robot.k8s4r.io", "create jobs.batch.volcano.sh",
	}
	never := []right{
		"list secrets", "watch secrets", "update secrets", "delete secrets", "impersonate users", "impersonate serviceaccounts",
		"create pods/exec", "get pods/log", "create serviceaccounts/token", "escalate roles.rbac.authorization.k8s.io", "bind roles.rbac.authorization.k8s.io",
		"create clusterrolebindings.rbac.authorization.k8s.io", "create robots.robot.k8s4r.io", "approve robots.robot.k8s4r.io", "update robots.robot.k8s4r.io",
	}
	for _, c := range []struct {
		name        string
		controllers []string
		may         []right // of far
	}{
		{"no controller", []string{"archive"}, nil},
		{"robots", []string{"job", "taskgroup", "task", "robot", "robotidentity", "rollout"}, []right{"create tasks.robot.k8s4r.io", "update tasks/status.robot.k8s4r.io", "use privileges.robot.k8s4r.io"}},
		{"flows", []string{"jobflow", "jobtemplate", "cronjobflow"}, []right{"use privileges.robot.k8s4r.io", "create jobs.batch.volcano.sh"}},
		{"vcjob", []string{"vcjob"}, []right{"create pods", "delete pods", "get secrets", "create secrets"}},
		{"raycluster", []string{"raycluster"}, []right{
			"create pods", "delete pods", "get secrets", "create secrets", "create serviceaccounts",
			"create roles.rbac.authorization.k8s.io", "create rolebindings.rbac.authorization.k8s.io",
		}},
		{"all", []string{"*"}, far},
	} {
		t.Run(c.name, func(t *testing.T) {
			account, err := client.New(s.managerConfig(manager.Config{Controllers: c.controllers}), client.Options{Scheme: manager.NewScheme()})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range far {
				if got := isAllowed(t, account, r); got != slices.Contains(c.may, r) {
					t.Errorf("it may %s: %v", r, got)
				}
			}
			for _, r := range never {
				if isAllowed(t, account, r) {
					t.Errorf("it may %s", r)
				}
			}
		})
	}
}

// TestManager_CannotGrantWhatItMayNot has an attacker with the account of the raycluster controller:
// it can create Roles, but none with more than the account has.
func TestManager_CannotGrantWhatItMayNot(t *testing.T) {
	t.Parallel()
	s := share(t, fleetServer, fleetConfig).namespace(t, "grants")
	account, err := client.New(s.managerConfig(manager.Config{Controllers: []string{raycluster.Name}}), client.Options{Scheme: manager.NewScheme()})
	s.must(err)
	for _, c := range []struct {
		name    string
		rule    rbacv1.PolicyRule
		allowed bool
	}{
		{"what a RayCluster's autoscaler needs", rbacv1.PolicyRule{APIGroups: []string{rayv1.GroupVersion.Group}, Resources: []string{"rayclusters"}, Verbs: []string{"patch"}}, true},
		{"all Secrets", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}, false},
		{"tasks on robots", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tasks"}, Verbs: []string{"create"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: "r-"}, Rules: []rbacv1.PolicyRule{c.rule}}
			err := account.Create(t.Context(), role, client.DryRunAll)
			if (err == nil) != c.allowed || err != nil && !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
				t.Error(err)
			}
		})
	}
	t.Run("a ClusterRole of administrators cannot be bound", func(t *testing.T) {
		err := account.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: "r-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.name, Name: "default"}},
		}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
			t.Error(err)
		}
	})
}
