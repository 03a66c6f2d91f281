package raycluster

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// ensureObjects creates the objects that Pods depend on and returns the first error.
func (c *Controller) ensureObjects(ctx context.Context, cluster *rayv1.RayCluster, objects []client.Object) error {
	for _, o := range objects {
		if err := c.ensureOne(ctx, cluster, o); err != nil {
			return err
		}
	}
	return nil
}

// kindOf returns the kind of an object.
func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// kindInEvents returns the kind of an object as the reasons of events have it.
func kindInEvents(o client.Object) string {
	if _, is := o.(*corev1.PersistentVolumeClaim); is {
		return "PVC"
	}
	return kindOf(o)
}

// ensureOne creates an object unless it was checked within the requeue interval. The watch clears
// that record when the object is deleted, so a deleted Service is created again at once.
func (c *Controller) ensureOne(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	k, hash, now := objectKey(kindOf(want), want.GetName()), hashOf(want), c.Now()
	var was ensured
	var forgotten uint64
	c.updateMemory(cluster, func(m *memory) { was, forgotten = m.ensured[k], m.forgotten })
	if was.hash == hash && now.Sub(was.at) < c.Options.Build.Requeue {
		return nil
	}
	err := c.ensureObject(ctx, cluster, want, was.hash != "")
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err == nil {
		c.updateMemory(cluster, func(m *memory) {
			if m.forgotten == forgotten { // otherwise it may have been deleted after it was read
				m.ensured[k] = ensured{hash, now}
			}
		})
	}
	return err
}

// expireSecretCheck makes the next pass read the cluster's Secret. Secrets are not watched, and new
// Pods cannot start without it.
func (c *Controller) expireSecretCheck(cluster *rayv1.RayCluster) {
	if !build.NeedsAuthSecret(cluster) {
		return
	}
	k := objectKey("Secret", build.AuthSecretName(cluster))
	c.updateMemory(cluster, func(m *memory) {
		if was, ok := m.ensured[k]; ok {
			m.ensured[k] = ensured{hash: was.hash}
		}
	})
}

// hashOf returns a hash of the wanted object. For a Secret it is the name: the generated token is
// different in each call, and an existing one is kept.
func hashOf(o client.Object) string {
	if _, secret := o.(*corev1.Secret); secret {
		return o.GetName()
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // the parts of a spec were decoded from JSON
	}
	return fmt.Sprintf("%x", sha1.Sum(text))
}

// ensureObject creates the object or updates the existing one. If before is set, it reads first,
// because an object that was there before most likely still exists.
func (c *Controller) ensureObject(ctx context.Context, cluster *rayv1.RayCluster, want client.Object, before bool) error {
	if before {
		if err := c.updateExisting(ctx, cluster, want); !apierrors.IsNotFound(err) {
			return err
		}
	}
	kind, reason := kindOf(want), kindInEvents(want)
	is := want.DeepCopyObject().(client.Object)
	err := c.Create(ctx, is)
	if err == nil {
		c.recordEvent(cluster, Event{corev1.EventTypeNormal, "Created" + reason, actionCreate,
			fmt.Sprintf("Created %s %s/%s", strings.ToLower(kind), want.GetNamespace(), want.GetName())})
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		return c.updateExisting(ctx, cluster, want)
	}
	err = fmt.Errorf("create %s %s/%s: %w", strings.ToLower(kind), want.GetNamespace(), want.GetName(), err)
	c.recordWarning(cluster, "FailedToCreate"+reason, actionCreate, "%s", err)
	return err
}

// errForeignObject is returned if an object has the name of one of the cluster's own and is not
// controlled by it. Such an object is never used, bound or changed: the author of the cluster may
// not have the rights to it.
var errForeignObject = errors.New("an object of that name exists and is not controlled by this RayCluster")

// updateExisting brings an existing object to the spec if the cluster controls it, and refuses it
// otherwise. Only a foreign Ingress is no error: the cluster works without one.
func (c *Controller) updateExisting(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	is := reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
	is.SetNamespace(want.GetNamespace())
	is.SetName(want.GetName())
	owned, err := kit.ReadExisting(ctx, c.Live, cluster, is)
	if err != nil {
		return err
	}
	if !owned && !isRetainedClaim(cluster, is) {
		return c.refuseObject(ctx, cluster, want)
	}
	switch is := is.(type) {
	case *networkingv1.Ingress:
		return c.updateIngress(ctx, cluster, is, want.(*networkingv1.Ingress))
	case *networkingv1.NetworkPolicy:
		return c.updatePolicy(ctx, cluster, is, want.(*networkingv1.NetworkPolicy))
	case *corev1.PersistentVolumeClaim:
		c.reportStorageDrift(cluster, is, want.(*corev1.PersistentVolumeClaim))
	case *rbacv1.Role:
		return c.updateRole(ctx, cluster, is, want.(*rbacv1.Role))
	case *rbacv1.RoleBinding:
		return c.updateRoleBinding(ctx, cluster, is, want.(*rbacv1.RoleBinding))
	}
	return nil
}

// refuseObject reports a foreign object that has the name of want.
func (c *Controller) refuseObject(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	switch want := want.(type) {
	case *networkingv1.Ingress:
		c.recordWarning(cluster, "FailedToUpdateIngress", actionUpdate, "Ingress %s/%s is not controlled by this RayCluster and is not updated", want.Namespace, want.Name)
		return nil
	case *rbacv1.Role:
		if err := c.unbindForeignRole(ctx, cluster, want); err != nil {
			return err
		}
	}
	err := fmt.Errorf("create %s %s: %w; %s", strings.ToLower(kindOf(want)), want.GetName(), errForeignObject, adviceOnForeign(want))
	reason := "FailedToCreate" + kindInEvents(want)
	if _, policy := want.(*networkingv1.NetworkPolicy); policy {
		reason = ReasonPolicyNameCollision
	}
	c.recordWarning(cluster, reason, actionCreate, "%s", err)
	return err
}

// adviceOnForeign returns what the user can do about a foreign object that has the name of want.
func adviceOnForeign(want client.Object) string {
	const remedy = "rename the cluster, or delete that object"
	switch want.(type) {
	case *corev1.ServiceAccount:
		return remedy + ", or name it in spec.headGroupSpec.template.spec.serviceAccountName"
	case *corev1.Secret:
		return remedy + ", or name it in spec.authOptions.secretName"
	case *corev1.PersistentVolumeClaim:
		return remedy + ", or name it in spec.gcsFaultToleranceOptions.storage.claimName"
	}
	return remedy
}

// updateIngress updates the Ingress if it differs from the spec.
func (c *Controller) updateIngress(ctx context.Context, cluster *rayv1.RayCluster, is, want *networkingv1.Ingress) error {
	if equality.Semantic.DeepEqual(is.Spec, want.Spec) && isSuperset(is.Annotations, want.Annotations) && isSuperset(is.Labels, want.Labels) {
		return nil
	}
	is.Spec, is.Annotations, is.Labels = want.Spec, want.Annotations, want.Labels
	return c.updateOwned(ctx, cluster, is)
}

// updateOwned writes an object of the cluster and records the result as an event.
func (c *Controller) updateOwned(ctx context.Context, cluster *rayv1.RayCluster, o client.Object) error {
	kind := kindOf(o)
	if err := c.Update(ctx, o); err != nil {
		err = fmt.Errorf("update %s %s: %w", strings.ToLower(kind), o.GetName(), err)
		c.recordWarning(cluster, "FailedToUpdate"+kind, actionUpdate, "%s", err)
		return err
	}
	c.recordEvent(cluster, Event{corev1.EventTypeNormal, "Updated" + kind, actionUpdate,
		fmt.Sprintf("Updated %s %s/%s", strings.ToLower(kind), o.GetNamespace(), o.GetName())})
	return nil
}

// isSuperset reports whether is has all entries of want.
func isSuperset(is, want map[string]string) bool {
	for k, v := range want {
		if is[k] != v {
			return false
		}
	}
	return true
}
