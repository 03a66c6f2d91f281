package raycluster

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

// updatePolicy updates a NetworkPolicy if it differs from the spec.
func (c *Controller) updatePolicy(ctx context.Context, cluster *rayv1.RayCluster, is, want *networkingv1.NetworkPolicy) error {
	if equality.Semantic.DeepEqual(is.Spec, want.Spec) && isSuperset(is.Labels, want.Labels) {
		return nil
	}
	if is.Spec = want.Spec; is.Labels == nil {
		is.Labels = map[string]string{}
	}
	maps.Copy(is.Labels, want.Labels) // others are the user's
	return c.updateOwned(ctx, cluster, is)
}

// deletePolicies deletes NetworkPolicies, but not newer ones of their names.
func (c *Controller) deletePolicies(ctx context.Context, cluster *rayv1.RayCluster, policies []*networkingv1.NetworkPolicy) error {
	return forEachParallel(ctx, policies, func(ctx context.Context, is *networkingv1.NetworkPolicy) error {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: is.ObjectMeta}
		err := c.Delete(ctx, policy, client.Preconditions{UID: &is.UID})
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			return nil
		case err != nil:
			err = fmt.Errorf("delete networkpolicy %s: %w", is.Name, err)
			c.recordWarning(cluster, ReasonFailedDeletePolicy, actionDelete, "%s", err)
			return err
		}
		c.updateMemory(cluster, func(m *memory) { delete(m.ensured, objectKey(kindOf(is), is.Name)) })
		c.recordEvent(cluster, Event{corev1.EventTypeNormal, ReasonDeletedPolicy, actionDelete, fmt.Sprintf("Deleted networkpolicy %s/%s", is.Namespace, is.Name)})
		return nil
	})
}
