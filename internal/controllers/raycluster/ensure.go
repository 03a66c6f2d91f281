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
)

// ensure makes the objects that stand around the Pods, and stops at the first that
// cannot be made.
func (c *Controller) ensure(ctx context.Context, cluster *rayv1.RayCluster, objects []client.Object) error {
	for _, o := range objects {
		if err := c.ensureOne(ctx, cluster, o); err != nil {
			return err
		}
	}
	return nil
}

// kindOf an object, as events have it.
func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// ensureOne makes an object, unless that was done a while ago. Whoever deletes a Service
// or a Secret is answered at once, by the watch.
func (c *Controller) ensureOne(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	k, hash, now := key(kindOf(want), want.GetName()), hashOf(want), c.Now()
	var was ensured
	c.remember(cluster, func(m *memory) { was = m.ensured[k] })
	if was.hash == hash && now.Sub(was.at) < c.Options.Build.Requeue {
		return nil
	}
	err := c.make(ctx, cluster, want, was.hash != "")
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err == nil {
		c.remember(cluster, func(m *memory) { m.ensured[k] = ensured{hash, now} })
	}
	return err
}

// hashOf what is asked for. Of a Secret it is the name: its token is another each time,
// and is kept once it was made.
func hashOf(o client.Object) string {
	if _, secret := o.(*corev1.Secret); secret {
		return o.GetName()
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // the parts of a spec have come out of JSON
	}
	return fmt.Sprintf("%x", sha1.Sum(text))
}

// make creates an object, or finds that it is there. One that was there before is
// looked for first, for that costs less.
func (c *Controller) make(ctx context.Context, cluster *rayv1.RayCluster, want client.Object, before bool) error {
	if before {
		if err := c.meet(ctx, cluster, want); !apierrors.IsNotFound(err) {
			return err
		}
	}
	kind := kindOf(want)
	is := want.DeepCopyObject().(client.Object)
	err := c.Create(ctx, is)
	if err == nil {
		c.event(cluster, Event{corev1.EventTypeNormal, "Created" + kind, actionCreate,
			fmt.Sprintf("Created %s %s/%s", strings.ToLower(kind), want.GetNamespace(), want.GetName())})
		return nil
	}
	if apierrors.IsAlreadyExists(err) {
		return c.meet(ctx, cluster, want)
	}
	err = fmt.Errorf("create %s %s/%s: %w", strings.ToLower(kind), want.GetNamespace(), want.GetName(), err)
	c.warn(cluster, "FailedToCreate"+kind, actionCreate, "%s", err)
	return err
}

// meet looks at an object whose name is taken. What nobody owns is taken as it is: a user
// has prepared it, or it was left behind when a cluster of that name was deleted without
// it. What is another's is left alone: the cluster works beside it or says that it cannot.
func (c *Controller) meet(ctx context.Context, cluster *rayv1.RayCluster, want client.Object) error {
	is := reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(want), is); err != nil {
		return fmt.Errorf("get %s %s: %w", strings.ToLower(kindOf(want)), want.GetName(), err)
	}
	in, isIngress := is.(*networkingv1.Ingress)
	switch {
	case metav1.IsControlledBy(is, cluster) && isIngress:
		return c.updateIngress(ctx, cluster, in, want.(*networkingv1.Ingress))
	case metav1.IsControlledBy(is, cluster):
		return nil
	case isIngress: // ours follows the spec, and this one will not
		c.warn(cluster, "FailedToUpdateIngress", actionUpdate, "Ingress %s/%s is another owner's, and is left as it is", in.Namespace, in.Name)
		return nil
	case metav1.GetControllerOf(is) == nil:
		return nil
	}
	err := fmt.Errorf("create %s %s: %w; rename the cluster, or delete the other", strings.ToLower(kindOf(want)), want.GetName(), errTaken)
	c.warn(cluster, "FailedToCreate"+kindOf(want), actionCreate, "%s", err)
	return err
}

// updateIngress brings it to what the spec says now.
func (c *Controller) updateIngress(ctx context.Context, cluster *rayv1.RayCluster, is, want *networkingv1.Ingress) error {
	if equality.Semantic.DeepEqual(is.Spec, want.Spec) && covers(is.Annotations, want.Annotations) && covers(is.Labels, want.Labels) {
		return nil
	}
	is.Spec, is.Annotations, is.Labels = want.Spec, want.Annotations, want.Labels
	if err := c.Update(ctx, is); err != nil {
		err = fmt.Errorf("update ingress %s: %w", is.Name, err)
		c.warn(cluster, "FailedToUpdateIngress", actionUpdate, "%s", err)
		return err
	}
	c.event(cluster, Event{corev1.EventTypeNormal, "UpdatedIngress", actionUpdate, fmt.Sprintf("Updated ingress %s/%s", is.Namespace, is.Name)})
	return nil
}

// covers tells whether all of want stands in is.
func covers(is, want map[string]string) bool {
	for k, v := range want {
		if is[k] != v {
			return false
		}
	}
	return true
}
