package hostnode

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/testkit"
)

const nodeUser = "system:serviceaccount:k8s4r-system:k8s4r-node"

// The process of the node is an administrator. The API server lets the node do what its role
// contains, and nothing else.
func TestNode_ActsWithItsOwnRole(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	for _, a := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "pods"}, {Verb: "list", Resource: "secrets"}, {Verb: "update", Resource: "secrets"}, {Verb: "delete", Resource: "nodes"},
		{Verb: "update", Resource: "nodes", Name: "other"}, {Verb: "impersonate", Resource: "users"}, {Verb: "create", Resource: "pods", Subresource: "exec"},
		{Verb: "patch", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, {Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "k8s4r-system"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: nodeUser, ResourceAttributes: &a}}
		if err := s.Create(t.Context(), review); err != nil || review.Status.Allowed {
			t.Errorf("%s %s: allowed %v, %v", a.Verb, a.Resource, review.Status.Allowed, err)
		}
	}
	roles := s.set.RbacV1().RoleBindings(corev1.NamespaceNodeLease)
	binding, err := roles.Get(t.Context(), "k8s4r-node", metav1.GetOptions{})
	if err == nil {
		err = roles.Delete(t.Context(), "k8s4r-node", metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, within, "the node is refused without its role", func() error {
		if out := s.OutputTail(); !strings.Contains(out, nodeUser) || !strings.Contains(out, "cannot get resource \\\"leases\\\"") {
			return fmt.Errorf("its log: %s", out)
		}
		return nil
	})
	binding.ResourceVersion = ""
	if _, err := roles.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
