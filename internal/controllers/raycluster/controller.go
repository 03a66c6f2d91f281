package raycluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/remember"
	"k8s4r.io/k8s4r/internal/controllers/standback"
	"k8s4r.io/k8s4r/internal/controllers/wake"
)

// Name of the controller.
const Name = "raycluster"

// KubeRayLease is the name of the Lease by which KubeRay's operator elects its leader.
const KubeRayLease = "ray-operator-leader"

// indexPods is the field by which the cache finds the Pods of a cluster.
const indexPods = "raycluster.pods.cluster"

// Controller creates the Pods of RayClusters and writes their status.
type Controller struct {
	client.Client
	// Live reads what the cache may not show yet.
	Live client.Reader
	Now  func() time.Time
	// Recorder reports as Reporter.
	Recorder events.EventRecorder
	// Options are what the operator has chosen.
	Options Options
	// Concurrency is the number of clusters that are worked on at a time.
	Concurrency int

	// own has what belongs to clusters, chosen by its labels.
	own     client.Reader
	expect  *expect.Set
	memory  *remember.Set[memory]
	rival   *standback.Rival
	started time.Time
}

// kubeRay is whom this controller leaves the clusters to.
func kubeRay() *standback.Rival {
	return &standback.Rival{
		Lease: KubeRayLease, Name: "KubeRay's operator", Objects: "RayClusters", Off: "--controllers=*,-" + Name,
	}
}

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.Options = c.Options.withDefaults()
	c.expect = expect.New(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = remember.New(newMemory)
	c.started = c.Now()
	own, err := ownCache(mgr, c.Options.Namespaces)
	if err != nil {
		return err
	}
	c.own, c.rival = own, kubeRay()
	c.rival.Leases = own
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&rayv1.RayCluster{}).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Pod{}, c.onPod())).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Service{}, c.onObject("Service"))).
		WatchesRawSource(source.Kind[client.Object](own, &batchv1.Job{}, c.onObject("Job"))).
		WatchesRawSource(source.Kind[client.Object](own, secret, c.onObject("Secret"))).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// Reconcile brings one cluster a step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := c.Now()
	if until, err := c.rival.Until(ctx, now); err != nil || until.After(now) {
		return wake.At(until, now), err
	}
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	measure(w.Cluster)
	steps := Plan(now, c.Options, *w)
	if len(steps.Refused) > 0 {
		c.findings(w, steps.Refused)
		return reconcile.Result{}, nil
	}
	if nothing(w, steps) {
		return wake.At(steps.WakeAt, now), nil
	}
	c.findings(w, steps.Warned)
	failed := c.apply(ctx, w, steps)
	if steps.AddFinalizer != "" || steps.RemoveFinalizer != "" || w.Cluster.DeletionTimestamp != nil {
		return wake.At(steps.WakeAt, now), failed
	}
	c.tellNoRay(w)
	due, err := c.writeStatus(ctx, w, Status(now, c.Options, *w, steps, failed))
	if !due.IsZero() && (steps.WakeAt.IsZero() || due.Before(steps.WakeAt)) {
		steps.WakeAt = due
	}
	if err := errors.Join(failed, err); err != nil {
		return reconcile.Result{}, err
	}
	return wake.At(steps.WakeAt, now), nil
}

// nothing tells whether the cluster is not ours to touch.
func nothing(w *World, s Steps) bool { return w.Cluster.DeletionTimestamp == nil && s.WakeAt.IsZero() }

// findings tells once of each generation what is wrong with a cluster.
func (c *Controller) findings(w *World, all []build.Invalid) {
	by := map[string][]string{}
	for _, r := range all {
		by[r.Reason] = append(by[r.Reason], r.Message)
	}
	for reason, messages := range by {
		text := strings.Join(messages, "; ")
		if c.news(w, reason, fmt.Sprint(w.Cluster.Generation, text)) {
			c.warn(w.Cluster, reason, actionValidate, "%s", text)
		}
	}
}

// tellNoRay says once of each head that it cannot start, because no Ray is there.
func (c *Controller) tellNoRay(w *World) {
	for _, pod := range w.Pods {
		if isHead(pod) && noRay(pod) && c.news(w, ReasonRayNotFound, string(pod.UID)) {
			c.warn(w.Cluster, ReasonRayNotFound, actionCreate, "Head Pod %s/%s: %s", pod.Namespace, pod.Name, trouble(pod))
		}
	}
}

// news tells whether this was not the last thing said about it.
func (c *Controller) news(w *World, about, text string) bool {
	is := false
	c.remember(w.Cluster, func(m *memory) { is, m.told[about] = m.told[about] != text, text })
	return is
}
