package raycluster

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
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

// kindOf returns the kind of an object, for events.
func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// ensureOne creates an object unless it was checked within the requeue interval. The watch clears
// that record when the object is deleted, so a deleted Service or Secret is created again at once.
func (c *Controller) ensureOne(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	k, hash, now := objectKey(kindOf(want), want.GetName()), hashOf(want), c.Now()
	var was ensured
	c.updateMemory(cluster, func(m *memory) { was = m.ensured[k] })
	if was.hash == hash && now.Sub(was.at) < c.Options.Build.Requeue {
		return nil
	}
	err := c.ensureObject(ctx, cluster, want, was.hash != "")
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err == nil {
		c.updateMemory(cluster, func(m *memory) { m.ensured[k] = ensured{hash, now} })
	}
	return err
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

// ensureObject creates the object or accepts the existing one. If before is set, it reads first,
// because an object that was there before most likely still exists.
func (c *Controller) ensureObject(ctx context.Context, cluster *rayv1.RayCluster, want client.Object, before bool) error {
	if before {
		if err := c.adoptExisting(ctx, cluster, want); !apierrors.IsNotFound(err) {
			return err
		}
	}
	kind := kindOf(want)
	is := want.DeepCopyObject().(client.Object)
	err := c.Create(ctx, is)
	if err == nil {
		c.recordEvent(cluster, Event{corev1.EventTypeNormal, "Created" + kind, actionCreate,
			fmt.Sprintf("Created %s %s/%s", strings.ToLower(kind), want.GetNamespace(), want.GetName())})
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		return c.adoptExisting(ctx, cluster, want)
	}
	err = fmt.Errorf("create %s %s/%s: %w", strings.ToLower(kind), want.GetNamespace(), want.GetName(), err)
	c.recordWarning(cluster, "FailedToCreate"+kind, actionCreate, "%s", err)
	return err
}

// adoptExisting checks the owner of an existing object. An object without an owner is accepted:
// a user prepared it, or it was orphaned by a cluster of this name. Another owner's object is left alone;
// if it is not an Ingress, the cluster cannot work without it and an error is returned.
func (c *Controller) adoptExisting(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	is := reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
	is.SetNamespace(want.GetNamespace())
	is.SetName(want.GetName())
	owned, err := kit.ReadExisting(ctx, c.Live, cluster, is)
	if err != nil {
		return err
	}
	in, isIngress := is.(*networkingv1.Ingress)
	switch {
	case owned && isIngress:
		return c.updateIngress(ctx, cluster, in, want.(*networkingv1.Ingress))
	case owned:
		return nil
	case isIngress: // an Ingress of another owner would not follow the spec
		c.recordWarning(cluster, "FailedToUpdateIngress", actionUpdate, "Ingress %s/%s belongs to another owner and is not updated", in.Namespace, in.Name)
		return nil
	case metav1.GetControllerOf(is) == nil:
		return nil
	}
	err = fmt.Errorf("create %s %s: %w; rename the cluster, or delete that object", strings.ToLower(kindOf(want)), want.GetName(), errNameTaken)
	c.recordWarning(cluster, "FailedToCreate"+kindOf(want), actionCreate, "%s", err)
	return err
}

// updateIngress updates the Ingress if it differs from the spec.
func (c *Controller) updateIngress(ctx context.Context, cluster *rayv1.RayCluster, is, want *networkingv1.Ingress) error {
	if equality.Semantic.DeepEqual(is.Spec, want.Spec) && isSuperset(is.Annotations, want.Annotations) && isSuperset(is.Labels, want.Labels) {
		return nil
	}
	is.Spec, is.Annotations, is.Labels = want.Spec, want.Annotations, want.Labels
	if err := c.Update(ctx, is); err != nil {
		err = fmt.Errorf("update ingress %s: %w", is.Name, err)
		c.recordWarning(cluster, "FailedToUpdateIngress", actionUpdate, "%s", err)
		return err
	}
	c.recordEvent(cluster, Event{corev1.EventTypeNormal, "UpdatedIngress", actionUpdate, fmt.Sprintf("Updated ingress %s/%s", is.Namespace, is.Name)})
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
