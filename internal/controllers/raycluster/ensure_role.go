package raycluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// updateRole sets the rules of the cluster's Role to those that its autoscaler needs.
func (c *Controller) updateRole(ctx context.Context, cluster *rayv1.RayCluster, is, want *rbacv1.Role) error {
	if equality.Semantic.DeepEqual(is.Rules, want.Rules) {
		return nil
	}
	is.Rules = want.Rules
	return c.updateOwned(ctx, cluster, is)
}

// updateRoleBinding sets the subjects of the cluster's RoleBinding to the autoscaler's account. A
// binding of another role is replaced, because the API server does not let that field change.
func (c *Controller) updateRoleBinding(ctx context.Context, cluster *rayv1.RayCluster, is, want *rbacv1.RoleBinding) error {
	if is.RoleRef != want.RoleRef {
		if err := c.deleteRoleBinding(ctx, cluster, is); err != nil {
			return err
		}
		return c.ensureObject(ctx, cluster, want, false)
	}
	if equality.Semantic.DeepEqual(is.Subjects, want.Subjects) {
		return nil
	}
	is.Subjects = want.Subjects
	return c.updateOwned(ctx, cluster, is)
}

// unbindForeignRole deletes the cluster's RoleBinding if it refers to a foreign Role, which may
// have taken the place of the cluster's own after that was bound.
func (c *Controller) unbindForeignRole(ctx context.Context, cluster *rayv1.RayCluster, role *rbacv1.Role) error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: role.Name}}
	owned, err := kit.ReadExisting(ctx, c.Live, cluster, binding)
	if err != nil || !owned {
		return client.IgnoreNotFound(err)
	}
	return c.deleteRoleBinding(ctx, cluster, binding)
}

// deleteRoleBinding deletes this RoleBinding, but not a newer one of its name. The next pass that
// finds the Role creates it again.
func (c *Controller) deleteRoleBinding(ctx context.Context, cluster *rayv1.RayCluster, binding *rbacv1.RoleBinding) error {
	err := c.Delete(ctx, binding, client.Preconditions{UID: &binding.UID})
	if client.IgnoreNotFound(err) != nil {
		err = fmt.Errorf("delete rolebinding %s: %w", binding.Name, err)
		c.recordWarning(cluster, "FailedToDeleteRoleBinding", actionDelete, "%s", err)
		return err
	}
	c.updateMemory(cluster, func(m *memory) { delete(m.ensured, objectKey(kindOf(binding), binding.Name)) })
	return nil
}
