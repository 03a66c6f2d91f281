package robot

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/uptime"
)

// Name is the name of the controller.
const Name = "robot"

// Controller approves robots and writes their status.
type Controller struct {
	client.Client
	Config
	Now      func() time.Time
	Recorder events.EventRecorder
	// Uptime measures for how long a robot was silent. If nil, it is uptime.OfProcess.
	Uptime func() time.Duration
	// Heartbeats has the HeartbeatSlices of the robots. If nil, there are none.
	Heartbeats *kit.Heartbeats
	// Concurrency is the number of robots that are reconciled at the same time.
	Concurrency int

	expect     *kit.Expectations
	counts     *robotTaskCounts
	heartbeats *kit.Sightings[types.UID, time.Time]
}

// indexID is the cache index of robots by id, across namespaces.
const indexID = "spec.robotId"

// Add starts the controller with the manager.
func (c *Controller) Add(mgr ctrl.Manager) error {
	c.Config = c.WithDefaults()
	c.expect = kit.NewExpectations(c.Now, mgr.GetLogger().WithName(Name))
	c.counts = newRobotTaskCounts()
	if c.Uptime == nil {
		c.Uptime = uptime.OfProcess
	}
	c.heartbeats = &kit.Sightings[types.UID, time.Time]{Uptime: c.Uptime}
	if err := c.Heartbeats.Watch(mgr); err != nil {
		return err
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Robot{}, indexID, func(o client.Object) []string {
		return []string{o.(*v1alpha1.Robot).Spec.RobotID}
	})
	if err != nil {
		return fmt.Errorf("index robots by id: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.Robot{}).
		Watches(&v1alpha1.Robot{}, handler.EnqueueRequestsFromMapFunc(c.requestsOfSameID)).
		Watches(&v1alpha1.Task{}, c.taskHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Concurrency}).
		Complete(c)
}

// requestsOfSameID returns requests for the robots of the same id in other namespaces. One
// of them may be approved after this one is deleted.
func (c *Controller) requestsOfSameID(ctx context.Context, o client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, r := range c.otherRobotsOfID(ctx, o.(*v1alpha1.Robot)) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(r)})
	}
	return out
}

// otherRobotsOfID returns the other robots with the id of r.
func (c *Controller) otherRobotsOfID(ctx context.Context, r *v1alpha1.Robot) []*v1alpha1.Robot {
	return slices.DeleteFunc(c.robotsOfID(ctx, r.Spec.RobotID), func(o *v1alpha1.Robot) bool { return o.UID == r.UID })
}

// robotsOfID returns all robots with an id.
func (c *Controller) robotsOfID(ctx context.Context, id string) (out []*v1alpha1.Robot) {
	var list v1alpha1.RobotList
	if err := c.List(ctx, &list, client.MatchingFields{indexID: id}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has stopped, and with it the controller
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// olderNamespace returns the namespace of an older robot with the id of r, or "".
func (c *Controller) olderNamespace(ctx context.Context, r *v1alpha1.Robot) string {
	for _, o := range c.otherRobotsOfID(ctx, r) {
		if o.CompareAge(r) < 0 {
			return o.Namespace
		}
	}
	return ""
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// taskHandler counts the tasks of each robot.
func (c *Controller) taskHandler() handler.EventHandler {
	enqueue := func(ctx context.Context, ids []string, q queue) {
		for _, id := range ids {
			for _, r := range c.robotsOfID(ctx, id) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(r)})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			enqueue(ctx, c.counts.recordTask(e.Object.(*v1alpha1.Task)), q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			enqueue(ctx, c.counts.recordTask(e.ObjectNew.(*v1alpha1.Task)), q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			enqueue(ctx, c.counts.dropTask(client.ObjectKeyFromObject(e.Object)), q)
		},
	}
}

// Reconcile reconciles one Robot.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w, err := c.observe(ctx, req.NamespacedName)
	if err != nil || w == nil {
		return reconcile.Result{}, err
	}
	now := c.Now()
	actions := Plan(now, c.Config, *w)
	if err := c.apply(ctx, w.Robot, actions); err != nil {
		return reconcile.Result{}, err
	}
	return kit.RequeueAt(actions.RequeueAt, now), nil
}

// observe reads the input of Plan. It returns nil if the robot was deleted or the cache is
// stale.
func (c *Controller) observe(ctx context.Context, k key) (*Input, error) {
	var r v1alpha1.Robot
	err := c.Get(ctx, k, &r)
	if apierrors.IsNotFound(err) {
		c.counts.forgetRobot(k)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	silence, isFirst, err := c.observeSilence(ctx, &r)
	if err != nil {
		return nil, err
	}
	if c.expect.IsStale(r.UID, r.ResourceVersion) {
		return nil, nil
	}
	w := &Input{Robot: &r, Silence: silence, MaySilenceBeLonger: isFirst, OlderNamespace: c.olderNamespace(ctx, &r)}
	w.Tasks, w.LastCount = c.counts.countsOf(k)
	if w.OlderNamespace != "" {
		w.Tasks = 0 // the tasks bound to this id run on the older robot
	}
	w.Robots = c.counts.countRobots(k)
	return w, nil
}

// sliceReadAge is how old a read of a slice past the cache may be on which the end of contact relies.
// If many robots of a slice go Offline together, they share the read.
const sliceReadAge = 5 * time.Second

// observeSilence returns for how long a robot has been silent, by its status and its slice, and
// whether it may be longer. Before a robot goes Offline, its slice is read past the cache.
func (c *Controller) observeSilence(ctx context.Context, r *v1alpha1.Robot) (silence time.Duration, isFirst bool, err error) {
	silence, isFirst = c.silenceOf(r)
	isOffline := lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOffline
	if silence < c.OfflineAfter || isOffline {
		return silence, isFirst, nil
	}
	if err := c.Heartbeats.Refresh(ctx, r, sliceReadAge); err != nil {
		return 0, false, err
	}
	silence, isFirst = c.silenceOf(r)
	return silence, isFirst, nil
}

func (c *Controller) silenceOf(r *v1alpha1.Robot) (silence time.Duration, isFirst bool) {
	silence, isFirst = c.heartbeats.Observe(r.UID, heartbeatID(r))
	if slice, ok := c.Heartbeats.ObserveRobot(r); ok {
		silence, isFirst = min(silence, slice.Silence), isFirst && slice.IsFirst
	}
	return silence, isFirst
}

func (c *Controller) apply(ctx context.Context, r *v1alpha1.Robot, actions Actions) error {
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).Info(why)
	}
	if actions.Status == nil {
		return nil
	}
	r.Status = *actions.Status
	if written, err := c.expect.UpdateStatus(ctx, c, r); !written {
		return err
	}
	c.counts.recordWrite(client.ObjectKeyFromObject(r), c.Now())
	if actions.Warning != "" {
		c.Recorder.Eventf(r, nil, corev1.EventTypeWarning, ReasonIDTaken, "Approve", "%s", actions.Warning)
	}
	if actions.NewPhase != "" {
		kind := corev1.EventTypeNormal
		if actions.NewPhase == lifecycle.RobotOffline {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(r, nil, kind, string(actions.NewPhase), "Follow", "%s", r.Status.Message)
	}
	return nil
}
