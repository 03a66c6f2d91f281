package raycluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// Name is the name of the controller in --controllers, logs and metrics.
const Name = "raycluster"

// KubeRayLease is the name of the leader election Lease of KubeRay's operator.
const KubeRayLease = "ray-operator-leader"

// indexPolicies is the cache index of NetworkPolicies by cluster name.
const indexPolicies = "raycluster.networkpolicies.cluster"

// indexPods is the cache index of Pods by cluster name.
const indexPods = "raycluster.pods.cluster"

// Controller creates the Pods of RayClusters and writes their status.
type Controller struct {
	client.Client
	// Live reads from the API server, for objects that the cache may not have yet.
	Live client.Reader
	Now  func() time.Time
	// Recorder records events. Its reporting controller is Reporter.
	Recorder events.EventRecorder
	// Options are the operator's settings for all clusters.
	Options Options
	// Concurrency is the number of clusters that are reconciled at a time.
	Concurrency int

	// own is the cache of the objects that carry the labels of RayClusters.
	own      client.Reader
	expect   *kit.Expectations
	memory   *kit.ObjectMemory[memory]
	peer     *kit.PeerOperator
	takeover takeover
}

// newPeerOperator returns the peer operator that this controller yields to.
func newPeerOperator() *kit.PeerOperator {
	return &kit.PeerOperator{
		LeaseName: KubeRayLease, DisplayName: "KubeRay's operator", ObjectKind: "RayClusters", DisableFlag: "--controllers=*,-" + Name,
	}
}

// Add registers the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.Options = c.Options.withDefaults()
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.memory = kit.NewObjectMemory(newMemory)
	own, err := ownCache(mgr, c.Options)
	if err != nil {
		return err
	}
	c.own, c.peer = own, newPeerOperator()
	c.peer.LeaseReader = own
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&rayv1.RayCluster{}).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Pod{}, c.onPod())).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Service{}, c.onObject("Service"))).
		WatchesRawSource(source.Kind[client.Object](own, &batchv1.Job{}, c.onObject("Job"))).
		WatchesRawSource(source.Kind[client.Object](own, newNodeMetadata(), c.onNode())).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency})
	if c.Options.Gates.NetworkPolicy {
		b = b.WatchesRawSource(source.Kind[client.Object](own, &networkingv1.NetworkPolicy{}, c.onObject("NetworkPolicy")))
	}
	if c.Options.Gates.EmbeddedStorage {
		b = b.WatchesRawSource(source.Kind[client.Object](own, &corev1.PersistentVolumeClaim{}, c.onObject("PersistentVolumeClaim")))
	}
	return b.Complete(c)
}

// Reconcile observes one cluster, plans and applies the actions, and writes the status.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	now := c.Now()
	if until, err := c.yieldToPeer(ctx, now); err != nil || until.After(now) {
		return kit.RequeueAt(until, now), err
	}
	w, err := c.observeCluster(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	c.recordMetrics(w.Cluster)
	steps := Plan(now, c.Options, *w)
	if len(steps.Rejections) > 0 {
		c.reportFindings(w, steps.Rejections)
		return reconcile.Result{}, nil
	}
	if isUnmanaged(w, steps) {
		return kit.RequeueAt(steps.RequeueAt, now), nil
	}
	c.reportFindings(w, steps.Warnings)
	failed := c.applyActions(ctx, w, steps)
	retry := failed // with growing delays, which a wait for the user must not have
	if errors.Is(failed, errForeignObject) {
		retry = nil
		kit.SetEarliest(&steps.RequeueAt, now.Add(unwatchedRequeueInterval))
	}
	if steps.AddFinalizer != "" && failed == nil || steps.RemoveFinalizer != "" || w.Cluster.DeletionTimestamp != nil {
		return kit.RequeueAt(steps.RequeueAt, now), retry
	}
	c.reportRayNotFound(w)
	due, err := c.writeStatus(ctx, w, ComputeStatus(now, c.Options, *w, steps, failed))
	if !due.IsZero() && (steps.RequeueAt.IsZero() || due.Before(steps.RequeueAt)) {
		steps.RequeueAt = due
	}
	if err := errors.Join(retry, err); err != nil {
		return reconcile.Result{}, err
	}
	return kit.RequeueAt(steps.RequeueAt, now), nil
}

func (c *Controller) recordMetrics(cluster *rayv1.RayCluster) {
	var provisionedAt time.Time
	c.updateMemory(cluster, func(m *memory) { provisionedAt = m.provisionedAt })
	recordMetrics(cluster, provisionedAt)
}

// yieldToPeer returns when to check again whether KubeRay's operator runs. A time that is not after
// now means that it does not run.
func (c *Controller) yieldToPeer(ctx context.Context, now time.Time) (time.Time, error) {
	until, err := c.peer.YieldUntil(ctx, now)
	if err == nil && until.After(now) {
		c.takeover.recordPeer(until)
	}
	c.takeover.recordReconcile(now)
	return until, err
}

// isUnmanaged reports whether spec.managedBy names another controller. Plan then returns no
// requeue time.
func isUnmanaged(w *Input, s Actions) bool {
	return w.Cluster.DeletionTimestamp == nil && s.RequeueAt.IsZero()
}

// reportFindings records the findings as events, once for each generation and text.
func (c *Controller) reportFindings(w *Input, all []build.Invalid) {
	by := map[string][]string{}
	for _, r := range all {
		by[r.Reason] = append(by[r.Reason], r.Message)
	}
	for reason, messages := range by {
		text := strings.Join(messages, "; ")
		if c.isNewMessage(w, reason, fmt.Sprint(w.Cluster.Generation, text)) {
			c.recordWarning(w.Cluster, reason, actionValidate, "%s", text)
		}
	}
}

// reportRayNotFound records an event, once for each head, if the head cannot start because its image has no Ray.
func (c *Controller) reportRayNotFound(w *Input) {
	for _, pod := range w.Pods {
		if isHead(pod) && isRayMissing(pod) && c.isNewMessage(w, ReasonRayNotFound, string(pod.UID)) {
			c.recordWarning(w.Cluster, ReasonRayNotFound, actionCreate, "Head Pod %s/%s: %s", pod.Namespace, pod.Name, describePodProblem(pod))
		}
	}
}

// isNewMessage reports whether text differs from the last message under the key about, and stores it.
func (c *Controller) isNewMessage(w *Input, about, text string) bool {
	is := false
	c.updateMemory(w.Cluster, func(m *memory) { is, m.lastMessages[about] = m.lastMessages[about] != text, text })
	return is
}
