package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit"
)

// accountOf returns the name by which the API server knows a program.
func accountOf(program string) string { return "system:serviceaccount:k8s4r-system:" + program }

// right is an action that RBAC allows or not.
type right struct{ verb, group, resource, name string }

// isAllowed reports whether RBAC allows a program the action, in the namespace default.
func (s *system) isAllowed(program string, r right) bool {
	s.t.Helper()
	resource, sub, _ := strings.Cut(r.resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: accountOf(program), Groups: []string{"system:serviceaccounts", "system:serviceaccounts:k8s4r-system", "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "default", Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub, Name: r.name,
		},
	}}
	if err := s.Create(context.Background(), review); err != nil {
		s.t.Fatal(err)
	}
	return review.Status.Allowed
}

// withdraw removes the rules that allow an action from a ClusterRole of a program, and returns a
// function that restores them.
func (s *system) withdraw(program, name string, r right) (restore func()) {
	s.t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := s.Get(context.Background(), client.ObjectKey{Name: name}, role); err != nil {
		s.t.Fatal(err)
	}
	whole := slices.Clone(role.Rules)
	set := func(rules []rbacv1.PolicyRule, allows bool) {
		s.t.Helper()
		role.Rules = rules
		if err := s.Update(context.Background(), role); err != nil {
			s.t.Fatal(err)
		}
		testkit.Eventually(s.t, time.Minute, fmt.Sprintf("the role %s is in force", name), func() bool { return s.isAllowed(program, r) == allows })
	}
	set(slices.DeleteFunc(slices.Clone(whole), func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, r.group) && slices.Contains(rule.Resources, r.resource) && slices.Contains(rule.Verbs, r.verb)
	}), false)
	return func() { set(whole, true) }
}

// awaitLog waits until the log of `up` has the text.
func (s *system) awaitLog(text string) {
	s.t.Helper()
	testkit.EventuallyNoError(s.t, time.Minute, "a line in the log", func() error {
		log, err := os.ReadFile(filepath.Join(s.DataDir, "logs", "k8s4r.log"))
		if err == nil && !strings.Contains(strings.ReplaceAll(string(log), `\`, ""), text) {
			err = fmt.Errorf("no %q", text)
		}
		return err
	})
}

// TestUp_ProgramsActWithTheirOwnRoles has the manager and the server in the process of `up`, which is
// an administrator. The API server lets each do what its ClusterRole contains, and nothing else.
func TestUp_ProgramsActWithTheirOwnRoles(t *testing.T) {
	t.Parallel()
	s := start(t, "--robots", "1", "--without", "node")
	s.awaitRobot("robot-1", "Online", time.Minute)
	const ours = "robot.k8s4r.io"
	for _, c := range []struct {
		program, role string
		need          right
	}{
		{"k8s4r-manager", "k8s4r-manager-robots", right{"create", ours, "taskgroups", ""}},
		{"k8s4r-server", "k8s4r-server", right{"update", ours, "tasks/status", ""}},
	} {
		t.Run(c.program+" needs its role", func(t *testing.T) {
			job := "without-" + c.program
			restore := s.withdraw(c.program, c.role, c.need)
			s.create(jobOf(job, 1, shell("say", "echo hi")))
			s.awaitLog(fmt.Sprintf(`User "%s" cannot %s resource "%s"`, accountOf(c.program), c.need.verb, c.need.resource))
			restore()
			s.awaitJob(job, "completed", 2*time.Minute)
		})
	}
	t.Run("the manager cannot grant what it may not do", func(t *testing.T) {
		restore := s.withdraw("k8s4r-manager", "k8s4r-manager-raycluster", right{"patch", "", "pods/resize", ""})
		defer restore()
		s.apply(`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: scales, namespace: default}, spec: {enableInTreeAutoscaling: true,
  headGroupSpec: {template: {spec: {containers: [{name: ray, image: ray}]}}}}}`)
		testkit.EventuallyNoError(t, time.Minute, "the API server refuses its Role", func() error {
			out, err := s.kubectl("get", "events", "--namespace=default", "--field-selector=reason=FailedToCreateRole")
			if err == nil && !strings.Contains(out, "attempting to grant RBAC permissions not currently held") {
				err = fmt.Errorf("events:\n%s", out)
			}
			return err
		})
	})
	t.Run("rights that neither has", func(t *testing.T) {
		for _, program := range []string{"k8s4r-manager", "k8s4r-server"} {
			for _, r := range []right{
				{"approve", ours, "robots", ""}, {"delete", ours, "robots", ""}, {"impersonate", "", "users", ""},
				{"list", "", "secrets", ""}, {"watch", "", "secrets", ""}, {"update", "", "secrets", ""},
				{"bind", rbacv1.GroupName, "roles", ""}, {"escalate", rbacv1.GroupName, "roles", ""}, {"create", rbacv1.GroupName, "clusterrolebindings", ""},
			} {
				if s.isAllowed(program, r) {
					t.Errorf("%s may %s %s", program, r.verb, r.resource)
				}
			}
		}
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			if s.isAllowed("k8s4r-manager", right{verb, ours, "heartbeatslices", ""}) {
				t.Errorf("the manager may %s heartbeatslices", verb)
			}
		}
	})
}
