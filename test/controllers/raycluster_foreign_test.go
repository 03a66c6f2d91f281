package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestRayCluster_RefusesForeignObjects has clusters that find objects under the names of their own.
// They are checked each second.
func TestRayCluster_RefusesForeignObjects(t *testing.T) {
	t.Parallel()
	settings, gates := build.DefaultSettings(), raycluster.DefaultGates()
	settings.Requeue = time.Second
	cfg := manager.Config{Controllers: onlyRay.Controllers, StatusTick: onlyRay.StatusTick, Ray: &settings, RayGates: &gates}
	rayCases(t, startApart(t, apartServer, cfg, caseNamespaces("foreign", len(rayForeign))...), "foreign", rayForeign)
}

var rayForeign = []rayCase{
	{"a tenant does not get a foreign Role bound", rayForeignRole},
	{"a foreign object is neither used nor changed, and the cluster continues when it is gone", rayForeignObjects},
	{"a binding from before the Role was replaced is deleted", rayReplacedRole},
	{"the Role and RoleBinding of a cluster are brought to its spec", rayOwnAccess},
	{"Redis: a foreign Job does not count as the cleanup", rayForeignCleanup},
}

// canDo reports whether the API server allows an account of the space an action on one of our
// resources.
func (s *space) canDo(account, verb, resource, name string) bool {
	s.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               fmt.Sprintf("system:serviceaccount:%s:%s", s.name, account),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.name, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: resource, Name: name},
	}}
	s.must(s.Create(s.Context(), review))
	return review.Status.Allowed
}

// rayForeignRole has a tenant who may edit the namespace and names clusters like Roles of its
// administrator. The second Role has only what the manager may do itself, so that the API server
// would let the manager bind it.
func rayForeignRole(s *space) {
	s.kubelet()
	for name, rule := range map[string]rbacv1.PolicyRule{
		"approver": {APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"robots"}, Verbs: []string{"approve"}},
		"trusted":  {APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"privileges"}, ResourceNames: []string{"raw_exec"}, Verbs: []string{"use"}},
	} {
		s.must(s.Create(s.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Rules: []rbacv1.PolicyRule{rule}}))
	}
	s.bind("edits", "tenant", "edit")
	tenant := s.as("tenant")
	testkit.EventuallyNoError(s, waitTimeout, "the tenant may edit", func() error {
		return client.IgnoreAlreadyExists(tenant.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "mine"}}))
	})
	for _, name := range []string{"approver", "trusted"} {
		testkit.EventuallyNoError(s, waitTimeout, "the tenant may create clusters", func() error {
			return tenant.Create(s.Context(), &rayv1.RayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: autoscaled("mine")})
		})
		testkit.EventuallyNoError(s, waitTimeout, "the Role is refused", func() error {
			if s.canDo("mine", "approve", "robots", "") || s.canDo("mine", "use", "privileges", "raw_exec") {
				s.Fatalf("cluster %s: the account of the tenant has the rights of a foreign Role", name)
			}
			return check(len(s.rayEvents("FailedToCreateRole")) > 0, "no event")
		})
		s.awaitRayEvent("FailedToCreateRole", "create role "+name+": an object of that name exists and is not controlled by this RayCluster")
		s.awaitRay(name, func(c *rayv1.RayCluster) error {
			return check(strings.Contains(c.Status.Reason, "is not controlled by this RayCluster"), "reason")
		})
		if err := s.Get(s.Context(), s.key(name), &rbacv1.RoleBinding{}); !apierrors.IsNotFound(err) {
			s.Errorf("RoleBinding %s: %v", name, err)
		}
		if pods := s.rayNodes(name, ""); len(pods) > 0 {
			s.Errorf("there are %v", podNames(pods))
		}
	}
	s.must(s.Delete(s.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "trusted"}}))
	s.rayReady("trusted")
	if s.canDo("mine", "use", "privileges", "raw_exec") {
		s.Error("the Role of the cluster has the rights of the deleted one")
	}
}

// autoscaled returns the spec of a cluster whose autoscaler uses this account. If empty, the
// cluster has an account of its own.
func autoscaled(account string) rayv1.RayClusterSpec {
	head := rayTemplate()
	head.Spec.ServiceAccountName = account
	return rayv1.RayClusterSpec{
		RayVersion: "2.53.0", EnableInTreeAutoscaling: ptr.To(true), HeadGroupSpec: rayv1.HeadGroupSpec{Template: head},
		AuthOptions: &rayv1.AuthOptions{Mode: rayv1.AuthToken},
	}
}

func rayForeignObjects(s *space) {
	s.kubelet()
	for _, foreign := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "account"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "role"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "binding"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "binding"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{rayv1.KeyAuthToken: "mine"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "service-head-svc"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 6379}}}},
	} {
		s.refusesForeign(strings.TrimSuffix(foreign.GetName(), "-head-svc"), foreign)
	}
}

// refusesForeign creates a cluster beside an object that has the name of one of its own, and
// deletes that object once it was refused.
func (s *space) refusesForeign(cluster string, foreign client.Object) {
	s.Helper()
	foreign.SetNamespace(s.name)
	s.must(s.Create(s.Context(), foreign))
	kind := kindOf(foreign)
	s.ray(cluster, func(c *rayv1.RayCluster) { c.Spec = autoscaled("") })
	text := fmt.Sprintf("create %s %s: an object of that name exists and is not controlled by this RayCluster", strings.ToLower(kind), foreign.GetName())
	if e := s.awaitRayEvent("FailedToCreate"+kind, text); e.Type != corev1.EventTypeWarning || e.Regarding.Name != cluster {
		s.Errorf("event %+v", e)
	}
	s.awaitRay(cluster, func(c *rayv1.RayCluster) error { return check(strings.Contains(c.Status.Reason, text), "reason") })
	was := foreign.DeepCopyObject().(client.Object)
	s.must(s.Get(s.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if foreign.GetResourceVersion() != was.GetResourceVersion() {
		s.Errorf("%s was changed: %+v", kind, foreign)
	}
	if pods := s.rayNodes(cluster, ""); len(pods) > 0 {
		s.Errorf("beside a foreign %s there are %v", kind, podNames(pods))
	}
	s.must(s.Delete(s.Context(), foreign))
	s.rayReady(cluster)
}

// kindOf returns the kind of a typed object.
func kindOf(o client.Object) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// rayReplacedRole has a cluster whose Role was replaced by another one after it was bound.
func rayReplacedRole(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec = autoscaled("") })
	s.rayReady("c")
	s.must(s.Delete(s.Context(), rayExists(s, "c", &rbacv1.Role{})))
	foreign := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}}
	testkit.EventuallyNoError(s, waitTimeout, "another Role has the name", func() error {
		_ = s.Delete(s.Context(), &rbacv1.Role{ObjectMeta: foreign.ObjectMeta}) // the controller may have been faster
		return s.Create(s.Context(), foreign.DeepCopy())
	})
	s.awaitRayEvent("FailedToCreateRole", "is not controlled by this RayCluster")
	testkit.EventuallyNoError(s, waitTimeout, "the RoleBinding is gone", func() error {
		err := s.Get(s.Context(), s.key("c"), &rbacv1.RoleBinding{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get: %w", err)
	})
	s.must(s.Delete(s.Context(), foreign))
	rayExists(s, "c", &rbacv1.RoleBinding{})
	s.rayReady("c")
}

// rayOwnAccess changes the Role and RoleBinding of a cluster, which then follow its spec again.
func rayOwnAccess(s *space) {
	s.kubelet()
	s.ray("c", func(c *rayv1.RayCluster) { c.Spec = autoscaled("") })
	s.rayReady("c")
	role, binding := rayExists(s, "c", &rbacv1.Role{}), rayExists(s, "c", &rbacv1.RoleBinding{})
	wantRules, wantSubjects := role.Rules, binding.Subjects
	role.Rules = append(slices.Clone(role.Rules), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	s.must(s.Update(s.Context(), role))
	binding.Subjects = append(slices.Clone(binding.Subjects), rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: s.name, Name: "other"})
	s.must(s.Update(s.Context(), binding))
	s.awaitRayEvent("UpdatedRole", s.name+"/c")
	s.awaitRayEvent("UpdatedRoleBinding", s.name+"/c")
	s.must(s.Get(s.Context(), s.key("c"), role))
	s.must(s.Get(s.Context(), s.key("c"), binding))
	if !equality.Semantic.DeepEqual(role.Rules, wantRules) || !equality.Semantic.DeepEqual(binding.Subjects, wantSubjects) {
		s.Errorf("rules %+v, subjects %+v", role.Rules, binding.Subjects)
	}
	s.must(s.Create(s.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "mine"}}))
	s.editRay("c", func(c *rayv1.RayCluster) { c.Spec.HeadGroupSpec.Template.Spec.ServiceAccountName = "mine" })
	testkit.EventuallyNoError(s, waitTimeout, "the RoleBinding names the account of the spec", func() error {
		err := s.Get(s.Context(), s.key("c"), binding)
		return errors.Join(err, check(len(binding.Subjects) == 1 && binding.Subjects[0].Name == "mine", "subjects %+v", binding.Subjects))
	})
	// The reference to a role cannot be changed, so such a binding is created again.
	s.must(s.Delete(s.Context(), binding))
	other := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c", OwnerReferences: binding.OwnerReferences},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}, Subjects: binding.Subjects,
	}
	testkit.EventuallyNoError(s, waitTimeout, "the binding refers to another role", func() error {
		_ = s.Delete(s.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c"}}) // the controller may have been faster
		return s.Create(s.Context(), other.DeepCopy())
	})
	testkit.EventuallyNoError(s, waitTimeout, "the RoleBinding refers to the Role of the cluster", func() error {
		err := s.Get(s.Context(), s.key("c"), binding)
		return errors.Join(err, check(binding.RoleRef.Name == "c", "it refers to %+v", binding.RoleRef))
	})
}

// rayForeignCleanup finds a finished Job of another owner under the name of the cleanup.
func rayForeignCleanup(s *space) {
	s.kubelet()
	c := s.ray("c", redis)
	s.rayReady("c")
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "c-redis-cleanup", Labels: map[string]string{rayv1.LabelCluster: "c"}}}
	foreign.Spec.Template.Spec = rayTemplate().Spec
	foreign.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	foreign.Spec.Suspend = ptr.To(true)
	s.must(s.Create(s.Context(), foreign))
	foreign.Status.StartTime = ptr.To(metav1.Now())
	foreign.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}, {Type: batchv1.JobFailed, Status: corev1.ConditionTrue},
	}
	testkit.EventuallyNoError(s, waitTimeout, "the foreign Job has failed", func() error {
		current := &batchv1.Job{}
		if err := s.Get(s.Context(), client.ObjectKeyFromObject(foreign), current); err != nil {
			return err
		}
		current.Status = foreign.Status
		return s.Status().Update(s.Context(), current)
	})
	s.must(s.Delete(s.Context(), c))
	s.awaitRayEvent("FailedToCreateRedisCleanupJob", "create job c-redis-cleanup: an object of that name exists and is not controlled by this RayCluster")
	s.must(s.Get(s.Context(), s.key("c"), c)) // its keys are still in Redis
	s.must(s.Delete(s.Context(), foreign, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	s.cleanupEnds("c", corev1.PodSucceeded)
	s.rayGone("c")
}
