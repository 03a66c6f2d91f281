package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/logstore"
	"k8s4r.io/k8s4r/internal/ratelimit"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/tracing"
	"k8s4r.io/k8s4r/internal/wire"
)

// Config is what an operator says of the server.
type Config struct {
	// MQTTURL of the broker, such as "mqtts://broker.example.com:8883".
	MQTTURL string
	// AllowPlaintext speaks to a broker without TLS that is on another machine.
	AllowPlaintext bool
	// ClientID at the broker. Empty: k8s4r-server. Only one server speaks at a
	// time, and a new one takes the connection over from one that hangs.
	ClientID string
	// RobotNamespace is where the Robots of robots that register are created.
	// Empty: default.
	RobotNamespace string
	// OfflineAfter is the silence after which a robot is offline. A third of
	// it bounds the age of the lastHeartbeatTime of a robot that speaks. Zero:
	// 5 minutes.
	OfflineAfter time.Duration
	// BatchWindow is how long the word that a task runs waits for the word
	// that it has ended. Zero: 50 ms.
	BatchWindow time.Duration
	// DeafAfter is how long a robot that sends heartbeats may leave a dispatch
	// unanswered. Zero: 30 s.
	DeafAfter time.Duration
	// SettleAfter is how long after a connect document agents are dispatched
	// nothing, and sent no list that names anything, if the broker has kept what
	// they said meanwhile: it may say that they have ended what they would be
	// asked to run. Zero: 2 s.
	SettleAfter time.Duration
	// TLS secures the connection to a broker at mqtts://. Nil: as the system
	// trusts.
	TLS *tls.Config
	// AllowLegacy hears agents of the document, on the topics that they share.
	AllowLegacy bool
	// Tokens let in those agents. Nil: nobody looks at their tokens.
	Tokens Tokens
	// AllowAnonymous registers robots that have no identity.
	AllowAnonymous bool
	// Tracer records what is published and what has run. Nil: nobody does.
	Tracer *tracing.Tracer
}

func (c Config) withDefaults() Config {
	c.ClientID = or(c.ClientID, "k8s4r-server")
	c.RobotNamespace = or(c.RobotNamespace, "default")
	c.OfflineAfter = or(c.OfflineAfter, 5*time.Minute)
	c.BatchWindow = or(c.BatchWindow, 50*time.Millisecond)
	c.DeafAfter = or(c.DeafAfter, deafAfter)
	c.SettleAfter = or(c.SettleAfter, 2*time.Second)
	return c
}

func or[T comparable](a, b T) T {
	var zero T
	if a == zero {
		return b
	}
	return a
}

// Cluster is the server's way to the API server.
type Cluster struct {
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
	// Informers of Tasks and Robots, started by the caller.
	Informers Informers
	// Warn tells people, as an event on the object.
	Warn func(object client.Object, reason, message string)
	// Logs keeps what tasks write. Nil: nobody does, and robots get no answer.
	Logs logstore.Store
	// Changed is told of each task whose state or log may have changed. It must
	// not block. Nil: nobody wants to know.
	Changed func(types.UID)
}

// Informers is the part of a cache that the bridge needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Bridge is the server. Make it with New; it runs once.
type Bridge struct {
	cfg       Config
	client    client.Client
	live      client.Reader
	informers Informers
	warn      func(client.Object, string, string)
	now       func() time.Time
	log       logr.Logger
	m         *metrics

	view       *view
	robots     *robots
	uses       *uses
	link       *link
	acks       *acks
	reports    *reports
	downlink   *downlink
	lists      *lists
	logs       *logs
	changed    func(types.UID)
	facts      *facts
	complaints complaints
	limits     *ratelimit.Limits
	greeting   sync.Mutex // one connection after the other
	robotQueue workqueue.TypedRateLimitingInterface[string]
	releases   workqueue.TypedRateLimitingInterface[types.UID]
	secrets    workqueue.TypedRateLimitingInterface[types.UID] // to be read for a dispatch
	synced     atomic.Int64                                    // when the view had all there is, in Unix nanoseconds; zero: not yet
	running    atomic.Bool
}

const (
	// robotWorkers write Robots at a time.
	robotWorkers = 4
	// releaseWorkers take finalizers off Tasks at a time.
	releaseWorkers = 4
	// secretWorkers read Secrets at a time.
	secretWorkers = 4
	// catchUp is how long after its start a server may still lack what the one
	// before it has seen.
	catchUp = 30 * time.Second
)

// New prepares a server. It registers its metrics with reg, unless that is
// nil.
func New(cfg Config, cluster Cluster, reg prometheus.Registerer, log logr.Logger) (*Bridge, error) {
	cfg = cfg.withDefaults()
	if err := cfg.CheckBroker(); err != nil {
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	b := &Bridge{
		cfg: cfg, client: cluster.Client, live: cluster.Live, informers: cluster.Informers, warn: cluster.Warn,
		now: time.Now, log: log, m: m, view: newView(), limits: newLimits(), robots: newRobots(cfg.PlaintextBroker()), uses: newUses(m), changed: cluster.Changed,
		robotQueue: newQueue[string](), releases: newQueue[types.UID](), secrets: newQueue[types.UID](),
	}
	if b.link, err = newLink(cfg.MQTTURL, cfg.ClientID, cfg.TLS, log); err != nil {
		return nil, err
	}
	if b.changed == nil {
		b.changed = func(types.UID) {}
	}
	b.wire(cluster.Logs)
	return b, nil
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](10*time.Millisecond, 10*time.Second))
}

// wire joins the parts. Each holds only what it calls.
func (b *Bridge) wire(logStore logstore.Store) {
	b.link.receive = b.receive
	b.link.tracer = b.cfg.Tracer
	b.acks = &acks{send: func(id string, a wire.Ack) { b.sendTo(id, wire.KindAck, a) }}
	b.reports = &reports{
		window: b.cfg.BatchWindow, now: b.now, view: b.view, live: b.live, writer: b.client.Status(),
		ack: b.acks.task, wrote: b.wroteTask, forget: b.caughtUp, tracer: b.cfg.Tracer, m: b.m, log: b.log,
	}
	b.reports.init()
	b.logs = &logs{
		store: logStore, view: b.view, now: b.now, ack: b.acks.logs, changed: b.changed, forget: b.caughtUp, bad: b.badLog, m: b.m, log: b.log,
	}
	b.logs.init()
	b.lists = &lists{now: b.now, view: b.view, dialect: b.lastDialect, publish: b.publish, tooMany: b.tooMany, up: b.link.upAs, current: b.link.current}
	b.lists.init()
	b.downlink = &downlink{
		now: b.now, view: b.view, dialect: b.dialect, epoch: b.lists.dispatchEpoch, publish: b.dispatch,
		release: b.releases.Add, reject: b.reports.add, silent: b.overdue, fetch: b.secrets.Add, log: b.log,
		up: b.link.upAs, pause: repeatFirst, patient: releaseAfter,
	}
	b.downlink.init()
	b.facts = &facts{view: b.view, send: b.dispatchAgain}
	b.link.subscribed, b.link.up = b.subscribed, b.up
}

// up sends what waited for the link.
func (b *Bridge) up() {
	b.downlink.allAgain()
	b.lists.wakeUp()
}

// subscribed tells all robots what should run, because the broker may have lost
// every retained message. Document agents are told later if the broker may have
// something of theirs for us.
func (b *Bridge) subscribed(connection int64, backlog bool) {
	b.greeting.Lock()
	defer b.greeting.Unlock()
	if b.link.current() != connection {
		return // the next one has its own backlog
	}
	settled := b.now()
	if backlog {
		settled = settled.Add(b.cfg.SettleAfter)
	}
	b.downlink.holdDocuments(settled)
	b.lists.sendAll(connection, settled)
}

// NeedLeaderElection tells the controller manager that only one server speaks
// at a time.
func (b *Bridge) NeedLeaderElection() bool { return true }

// Ready returns nil while the server waits to lead, and while it speaks to the
// broker.
func (b *Bridge) Ready() error {
	if !b.running.Load() {
		return nil
	}
	return b.link.ready()
}

// Start serves until ctx ends. It says nothing to any robot, and hears
// nothing, before it has seen all Tasks and Robots.
func (b *Bridge) Start(ctx context.Context) error {
	b.running.Store(true)
	defer func() {
		b.running.Store(false)
		b.m.brokerUp.Set(0)
	}()
	unwatch, err := b.watch(ctx)
	defer unwatch()
	if err != nil {
		return err
	}
	b.synced.Store(b.now().UnixNano())
	b.log.Info("serving robots", "broker", b.link.url.Redacted(), "robots", len(b.view.robotIDs()))
	return b.serve(ctx)
}

func (b *Bridge) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What robots say is taken in until the link is closed, and then written.
	hearing, deaf := context.WithCancel(context.WithoutCancel(ctx))
	defer deaf()
	var wg sync.WaitGroup
	for range robotWorkers {
		wg.Go(func() { work(ctx, b.robotQueue, b.syncRobot, b.gaveUp) })
	}
	for range releaseWorkers {
		wg.Go(func() { work(ctx, b.releases, b.letTaskGo, b.gaveUp) })
	}
	for range secretWorkers {
		wg.Go(func() { work(ctx, b.secrets, b.dispatchSecrets, b.gaveUp) })
	}
	wg.Go(func() { b.reports.run(hearing) })
	wg.Go(func() { b.logs.run(ctx) })
	wg.Go(func() { b.lists.run(ctx) })
	wg.Go(func() { b.downlink.run(ctx) })
	wg.Go(func() { b.sweep(ctx) })
	err := b.link.run(ctx)
	cancel()
	deaf()
	b.robotQueue.ShutDown()
	b.releases.ShutDown()
	b.secrets.ShutDown()
	wg.Wait()
	return err
}

// gaveUp logs a failure that is tried again later.
func (b *Bridge) gaveUp(err error) { b.log.Error(err, "try again later") }

// work does what the queue says until ctx ends, again and again if need be.
func work[T comparable](ctx context.Context, q workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) error, failed func(error)) {
	for {
		key, shutdown := q.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		workOne(ctx, q, key, do, failed)
	}
}

func workOne[T comparable](ctx context.Context, q workqueue.TypedRateLimitingInterface[T], key T, do func(context.Context, T) error, failed func(error)) {
	defer q.Done(key)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := do(ctx, key)
	switch {
	case err == nil:
		q.Forget(key)
	case errors.Is(err, errStale):
		q.AddRateLimited(key)
	default:
		failed(err)
		q.AddRateLimited(key)
	}
}

// sweep looks at every robot now and then: heartbeats that are due to be
// written, last wills that have proven true, and robots that have fallen silent.
func (b *Bridge) sweep(ctx context.Context) {
	tick := time.NewTicker(max(10*time.Millisecond, min(time.Second, b.cfg.OfflineAfter/20)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.sweepOnce(b.now())
		}
	}
}

func (b *Bridge) sweepOnce(now time.Time) {
	b.robots.settle(func(id string) bool { return b.view.robot(id) != nil }, now, b.cfg.OfflineAfter)
	connected := 0
	for _, id := range b.view.robotIDs() {
		r := b.view.robot(id)
		if r != nil && meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionConnected) {
			connected++
		}
		if r != nil && (b.isGone(now, id, r) || heartbeatDue(now, id, r.Status, b.robots.get(id), b.cfg.OfflineAfter)) {
			b.robotQueue.Add(id)
		}
	}
	b.m.robots.Set(float64(connected))
	b.m.brokerUp.Set(oneIf(b.link.ready() == nil))
}

// oneIf is how Prometheus has a truth.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// isGone tells whether a robot is out of contact from now on. Only of one that is
// written down as connected silence says something new; and a server that has
// just started has not listened long enough to say it.
func (b *Bridge) isGone(now time.Time, id string, r *robotv1.Robot) (gone bool) {
	since := time.Unix(0, b.synced.Load())
	if at := r.Status.LastHeartbeatTime; at != nil {
		since = latest(since, at.Time)
	}
	connected := meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionConnected)
	b.robots.change(id, true, func(w *word) {
		gone = w.prove(now) || connected && w.fallSilent(now, since, b.cfg.OfflineAfter)
	})
	return gone
}

// lastDialect is what a robot speaks. Empty: it has never spoken.
func (b *Bridge) lastDialect(robotID string) string {
	return dialect(b.robots.get(robotID), b.view.robot(robotID))
}

// dialect is what a robot is given work in. Empty: it is given none, because it has
// never spoken, or is revoked: a broker that nobody has told of that would bring it
// all. Its list it is sent, empty, in the place of the one that is retained.
func (b *Bridge) dialect(robotID string) string {
	if b.view.revoked(robotID) {
		return ""
	}
	return b.lastDialect(robotID)
}

// caughtUp tells whether a Task that is not in the view is certainly gone.
func (b *Bridge) caughtUp() bool {
	at := b.synced.Load()
	return at != 0 && b.now().Sub(time.Unix(0, at)) > catchUp
}

func (b *Bridge) sendTo(robotID string, k wire.Kind, v any) bool {
	payload, err := wire.Encode(v)
	if err != nil {
		b.log.Error(err, "send", "robot", robotID, "kind", k)
		return false
	}
	return b.publish(b.link.current(), robotID, k, payload, false)
}

func (b *Bridge) publish(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool {
	return b.handOver(robotID, k, message{
		topic: wire.RobotTopic(robotID, k), payload: payload, retain: retain, expiry: k.MessageExpiry(), connection: connection,
	})
}

// dispatch publishes what a task asks of its robot, in the trace of its attempt.
func (b *Bridge) dispatch(connection int64, robotID string, t *robotv1.Task, payload []byte) bool {
	m := message{topic: wire.RobotTopic(robotID, wire.KindDispatch), payload: payload, expiry: wire.KindDispatch.MessageExpiry(), connection: connection}
	at := traceparent.OfAttempt(string(t.UID), t.Status.Attempt)
	if at.Sampled = b.cfg.Tracer.Keeps(at); at.Sampled && wanted(t) == wire.ActionCreate {
		m.trace, m.handed = at, b.now()
	}
	return b.handOver(robotID, wire.KindDispatch, m)
}

func (b *Bridge) handOver(robotID string, k wire.Kind, m message) bool {
	if !b.link.publish(robotID, m) {
		b.drop(k, "queue is full")
		return false
	}
	b.m.sent.WithLabelValues(string(k)).Inc()
	return true
}

// badLog says that a piece of a log was not taken: a robot's fault, or the disk's.
func (b *Bridge) badLog(robotID string, err error) {
	b.drop(wire.KindLogs, "not taken")
	if b.view.robot(robotID) == nil {
		robotID = "" // strangers share one line
	}
	if b.complaints.allow(robotID, b.now()) {
		b.log.Info("could not take in a log; the robot will send it again", "robot", robotID, "reason", err.Error())
	}
}

// tooMany says that a robot has more tasks than a list can name.
func (b *Bridge) tooMany(robotID string, tasks int) {
	b.drop(wire.KindState, "too large")
	if b.complaints.allow(robotID, b.now()) {
		b.log.Info("a robot has more tasks than a message to it can name; lower its capacity", "robot", robotID, "tasks", tasks)
	}
}

// watch follows Tasks and Robots, and returns once the view holds them all.
// The function that it returns ends that.
func (b *Bridge) watch(ctx context.Context) (unwatch func(), err error) {
	var undo []func()
	unwatch = func() {
		for _, f := range undo {
			f()
		}
	}
	var synced []toolscache.InformerSynced
	var stands uint64
	for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&robotv1.Robot{}: handlerOf(b.sawRobot, b.robotGone),
		&robotv1.Task{}:  handlerOf(b.taskIs, b.taskGone),
	} {
		informer, err := b.informers.GetInformer(ctx, object)
		if err != nil {
			return unwatch, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, ofTasks := object.(*robotv1.Task); ofTasks {
			// Before the handler, which is then given all that was there.
			if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return unwatch, fmt.Errorf("wait for the first list: %w", context.Cause(ctx))
			}
			stands = storeVersion(informer)
		}
		reg, err := informer.AddEventHandler(handler)
		if err != nil {
			return unwatch, fmt.Errorf("watch %T: %w", object, err)
		}
		undo = append(undo, func() { _ = informer.RemoveEventHandler(reg) })
		synced = append(synced, reg.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return unwatch, fmt.Errorf("wait for the first list: %w", context.Cause(ctx))
	}
	b.view.reached(stands)
	return unwatch, nil
}

// storeVersion is the resource version that an informer's store stands at. It
// is above that of any object in it when what was newer has been deleted, which
// leaves no other trace. Zero: the informer does not say.
func storeVersion(i cache.Informer) uint64 {
	s, ok := i.(interface{ GetStore() toolscache.Store })
	if !ok {
		return 0
	}
	return versionOf(s.GetStore().LastStoreSyncResourceVersion())
}

func handlerOf[T client.Object](is, gone func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { is(o.(T)) },
		UpdateFunc: func(_, o any) { is(o.(T)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if t, ok := o.(T); ok {
				gone(t)
			}
		},
	}
}

func (b *Bridge) taskIs(t *robotv1.Task) {
	if old, news := b.view.deliverTask(t); news {
		b.taskChanged(old, t)
	} else {
		b.changed(t.UID) // our own write, which the cache has only now
	}
}

func (b *Bridge) wroteTask(t *robotv1.Task) {
	if old, news := b.view.wroteTask(t); news {
		b.taskChanged(old, t)
	}
}

func (b *Bridge) taskChanged(old, t *robotv1.Task) {
	if lifecycle.TaskState(t.Status.State) != lifecycle.TaskRunning {
		b.uses.forget(t.UID)
	}
	b.lists.changed(old, t)
	b.downlink.changed(t.UID)
	b.logs.say(old, t)
	b.changed(t.UID)
}

func (b *Bridge) taskGone(t *robotv1.Task) {
	b.uses.forget(t.UID)
	if old := b.view.removeTask(t); old != nil {
		b.lists.changed(old, nil)
		b.downlink.removed(old)
		b.changed(t.UID)
	}
}

// dispatchAgain sends a task that runs to its agent, if that is one of ours: another
// one might start it again.
func (b *Bridge) dispatchAgain(t *robotv1.Task) {
	if b.dialect(t.RobotOfAttempt()) == robotv1.ProtocolK8s4r {
		b.downlink.send(t, wire.ActionCreate)
	}
}

// sawRobot takes in a Robot as it is now. A robot that waits for its approval
// hears of it from here.
func (b *Bridge) sawRobot(r *robotv1.Robot) {
	first, was := b.view.robot(r.Name) == nil, b.view.revoked(r.Name)
	if !b.view.putRobot(r) {
		return
	}
	b.facts.seen(r)
	if is := b.view.revoked(r.Name); !first && is != was {
		b.trustChanged(r.Name)
	}
	w := b.robots.get(r.Name)
	if w.waits {
		b.robotQueue.Add(r.Name)
	}
	if first {
		b.lists.refresh(r.Name)
		b.downlink.robotHere(r.Name, b.view.tasksOn(r.Name), w.protocol == robotv1.ProtocolDocument)
	}
}

// trustChanged takes in that a robot was revoked, which is to hold nothing any
// more, or is so no longer: then it hears what waited for it.
func (b *Bridge) trustChanged(robotID string) {
	b.lists.refresh(robotID)
	b.downlink.robotHere(robotID, b.view.tasksOn(robotID), b.lastDialect(robotID) == robotv1.ProtocolDocument)
}

func (b *Bridge) robotGone(r *robotv1.Robot) {
	b.view.removeRobot(r)
	id := r.Spec.RobotID // by which all of them remember
	if b.view.robot(id) == nil {
		b.lists.forget(id)
		b.complaints.forget(id)
		b.limits.Forget(id)
		b.facts.forget(id)
	}
}
