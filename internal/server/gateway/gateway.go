package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/platform/restore"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/platform/uptime"
	"k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// Config configures the gateway.
type Config struct {
	// MQTTURL is the URL of the broker, such as "mqtts://broker.example.com:8883".
	MQTTURL string
	// AllowPlaintext permits a broker on another machine without TLS.
	AllowPlaintext bool
	// ClientID at the broker. Default: k8s4r-server. Only one server is connected at a
	// time; a new one replaces the connection of one that hangs.
	ClientID string
	// RobotNamespace is the namespace in which Robots are created. Default: default.
	RobotNamespace string
	// OfflineAfter is how long a robot may be silent before it is offline. A third of it
	// bounds the age of a connected robot's time in its HeartbeatSlice. Default: 5 minutes.
	OfflineAfter time.Duration
	// BatchWindow delays writing a "running" report so that a "finished" report that
	// follows can share the write. Default: 100 ms.
	BatchWindow time.Duration
	// UnresponsiveAfter is how long a robot that sends heartbeats may leave a dispatch
	// unanswered. Default: 30 s.
	UnresponsiveAfter time.Duration
	// BacklogWindow is how long after a connect legacy agents get no dispatches and no
	// lists with tasks, if the broker has queued their messages: these may report the
	// end of a task that would otherwise run again. Default: 2 s.
	BacklogWindow time.Duration
	// TLS configures connections to mqtts:// URLs. If nil, the system's CAs are trusted.
	TLS *tls.Config
	// AllowLegacy accepts messages of legacy agents on their shared topics.
	AllowLegacy bool
	// Tokens checks the tokens of legacy agents. If nil, they are not checked.
	Tokens Tokens
	// AllowAnonymous registers robots without a certificate.
	AllowAnonymous bool
	// Tracer records dispatches and runs. If nil, there are no traces.
	Tracer *tracing.Tracer
	// Restore is closed after a restore from a backup. The gateway opens it when the robots have
	// reported. If nil, it is open.
	Restore *restore.Gate
}

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, "k8s4r-server")
	c.RobotNamespace = cmp.Or(c.RobotNamespace, "default")
	c.OfflineAfter = cmp.Or(c.OfflineAfter, 5*time.Minute)
	c.BatchWindow = cmp.Or(c.BatchWindow, 100*time.Millisecond)
	c.UnresponsiveAfter = cmp.Or(c.UnresponsiveAfter, unresponsiveAfter)
	c.BacklogWindow = cmp.Or(c.BacklogWindow, 2*time.Second)
	return c
}

// Cluster is the gateway's access to the API server.
type Cluster struct {
	Client client.Client
	// APIReader reads without the cache.
	APIReader client.Reader
	// Informers of Tasks, Robots, Rollouts and HeartbeatSlices, started by the caller.
	Informers Informers
	// Warn records a Warning event on the object.
	Warn func(object client.Object, reason, message string)
	// Logs stores the output of tasks. If nil, logs are dropped and not acknowledged.
	Logs logstore.Store
	// OnTaskChanged is called for each task whose state or log may have changed. It must
	// not block. Optional.
	OnTaskChanged func(types.UID)
}

// Informers is the part of a cache that the gateway needs.
type Informers interface {
	GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Gateway carries messages between robots and the API server. Create it with New and
// call Start once.
type Gateway struct {
	cfg       Config
	client    client.Client
	apiReader client.Reader
	informers Informers
	warn      func(client.Object, string, string)
	now       func() time.Time
	uptime    func() time.Duration // of the machine
	log       logr.Logger
	m         *metrics

	objects    *objectIndex
	robots     *robotStates
	checks     *robotChecks
	slices     *heartbeatSlices
	usage      *usageTracker
	mqtt       *mqttClient
	acks       *ackBatcher
	reports    *reportWriter
	downlink   *downlink
	taskLists  *taskLists
	accepted   acceptedDispatches
	logs       *logWriter
	notifyTask func(types.UID)
	attributes *attributeWatcher
	// restoration reads the journals of the robots after a restore.
	restoration *restoration
	// rateLimitedLog remembers known robots only, so their number bounds it.
	rateLimitedLog limits.Interval
	limits         *robotLimits
	quotas         *reportQuotas
	limitEvents    limits.Interval // by limit and robot or namespace
	subscribeMu    sync.Mutex      // serializes onSubscribed
	robotQueue     workqueue.TypedRateLimitingInterface[string]
	sliceQueue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	finalizerQueue workqueue.TypedRateLimitingInterface[types.UID]
	secretQueue    workqueue.TypedRateLimitingInterface[types.UID] // tasks whose Secrets are to be read for a dispatch
	secretRequests secretRequests                                  // of agents for attempts that have started
	syncedAt       atomic.Int64                                    // uptime when the index was complete, in nanoseconds; zero: not yet
	orders         agentOrders
	orderQueue     workqueue.TypedRateLimitingInterface[string] // robots whose agents are due an order
	// formerManagerAt is the uptime at the last write of a manager that does not read slices, in
	// nanoseconds; zero: none.
	formerManagerAt atomic.Int64
	running         atomic.Bool
}

const (
	// robotWorkers is the number of concurrent writes of Robots.
	robotWorkers = 4
	// sliceWorkers is the number of concurrent writes of HeartbeatSlices.
	sliceWorkers = 2
	// releaseWorkers is the number of concurrent removals of finalizers.
	releaseWorkers = 4
	// secretWorkers is the number of concurrent reads of Secrets.
	secretWorkers = 4
	// journalWorkers is the number of robots whose journals are read at the same time.
	journalWorkers = 8
	// catchUp is how long after its start a server's cache may lag behind what the
	// previous server has seen.
	catchUp = 30 * time.Second
)

// New creates a gateway. If reg is not nil, it registers the metrics there.
func New(cfg Config, cluster Cluster, reg prometheus.Registerer, log logr.Logger) (*Gateway, error) {
	cfg = cfg.withDefaults()
	if err := cfg.ValidateBroker(); err != nil {
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	g := &Gateway{
		cfg: cfg, client: cluster.Client, apiReader: cluster.APIReader, informers: cluster.Informers, warn: cluster.Warn,
		now: time.Now, uptime: uptime.OfMachine, log: log, m: m, objects: newObjectIndex(), limits: newRobotLimits(), limitEvents: limits.Interval{Period: limitEventPeriod, MaxNames: maxLimitEvents}, rateLimitedLog: limits.Interval{Period: logInterval}, robots: newRobotStates(cfg.IsPlaintextBroker(), uptime.OfMachine), usage: newUsageTracker(m), notifyTask: cluster.OnTaskChanged,
		robotQueue: newQueue[string](), sliceQueue: newQueue[types.NamespacedName](), finalizerQueue: newQueue[types.UID](), secretQueue: newQueue[types.UID](),
		orders: newAgentOrders(), orderQueue: newQueue[string](),
	}
	if g.mqtt, err = newMQTTClient(cfg.MQTTURL, cfg.ClientID, cfg.TLS, log); err != nil {
		return nil, err
	}
	if g.notifyTask == nil {
		g.notifyTask = func(types.UID) {}
	}
	g.checks = newRobotChecks()
	g.slices = newHeartbeatSlices(cfg.OfflineAfter, func() time.Duration { return g.uptime() }, g.robots, g.objects)
	g.restoration = newRestoration(cfg.Restore, g.now())
	g.connectComponents(cluster.Logs)
	return g, nil
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](10*time.Millisecond, 10*time.Second))
}

// connectComponents gives each component the functions of others that it calls.
func (g *Gateway) connectComponents(logStore logstore.Store) {
	g.mqtt.receive = g.receive
	g.mqtt.tracer = g.cfg.Tracer
	g.quotas = newReportQuotas(g.namespaceOfRobot)
	g.acks = &ackBatcher{send: func(id string, a wire.Ack) { g.sendMessage(id, wire.KindAck, a) }}
	g.reports = &reportWriter{
		window: g.cfg.BatchWindow, now: g.now, objects: g.objects, live: g.apiReader, writer: g.client.Status(),
		sendAck: g.acks.ackTask, onWrite: g.storeTask, isGone: g.hasCaughtUp, tracer: g.cfg.Tracer, m: g.m, log: g.log,
		quotas: g.quotas, onLimited: g.recordLimit, progress: rate.NewLimiter(progressPerSecond, progressPerSecond),
	}
	g.reports.initWorkers()
	g.logs = &logWriter{
		store: logStore, objects: g.objects, now: g.now, sendAck: g.acks.ackLog, onChange: g.notifyTask, isGone: g.hasCaughtUp, onError: g.dropLog, m: g.m, log: g.log,
	}
	g.logs.initWorkers()
	g.taskLists = &taskLists{serverID: rand.Text(), now: g.now, objects: g.objects, protocolOf: g.lastProtocol, publish: g.publishToRobot, onTooLarge: g.dropTaskList, upConnection: g.mqtt.upConnection, currentConnection: g.mqtt.currentConnection,
		journalRequest: g.restoration.requestFor, mustQuery: g.restoration.mustQuery,
		unanswered: func(id string) map[types.UID]bool { return g.downlink.unansweredTasks(id) }}
	g.taskLists.initMaps()
	g.downlink = &downlink{
		now: g.now, objects: g.objects, protocolOf: g.dispatchProtocol, dispatchEpoch: g.taskLists.dispatchEpoch, publish: g.publishDispatch,
		runsArrays: g.runsArrays, releaseTask: g.finalizerQueue.Add, addReport: g.reports.addReport, onOverdue: g.recordOverdue, fetchSecrets: g.secretQueue.Add, log: g.log,
		upConnection: g.mqtt.upConnection, repeatPause: minRepeat, legacyGrace: releaseAfter, isRestoring: g.restoration.mustQuery,
		lastSeen: func(id string) time.Time { return g.robots.contactOf(id).lastSeen },
	}
	g.downlink.initMaps()
	g.attributes = &attributeWatcher{objects: g.objects, send: g.resendTask}
	g.mqtt.onSubscribed, g.mqtt.onUp = g.onSubscribed, g.onConnectionUp
}

// onConnectionUp sends what was queued while the connection was down.
func (g *Gateway) onConnectionUp() {
	g.downlink.resendAll()
	g.taskLists.wakeUp()
}

// onSubscribed publishes all task lists, because the broker may have lost its retained
// messages. Dispatches to legacy agents wait if the broker may have queued messages of theirs.
func (g *Gateway) onSubscribed(connection int64, backlog bool) {
	g.subscribeMu.Lock()
	defer g.subscribeMu.Unlock()
	if g.mqtt.currentConnection() != connection {
		return // a newer connection has its own backlog
	}
	settled := g.now()
	if backlog {
		settled = settled.Add(g.cfg.BacklogWindow)
	}
	g.downlink.holdLegacyAgents(settled)
	g.taskLists.sendAll(connection)
}

// NeedLeaderElection reports that only one server is connected to the broker at a time.
func (g *Gateway) NeedLeaderElection() bool { return true }

// Ready returns nil while the server waits for leadership, and while it is connected to
// the broker.
func (g *Gateway) Ready() error {
	if !g.running.Load() {
		return nil
	}
	return g.mqtt.checkUp()
}

// Start serves until ctx ends. It connects to the broker once its index contains all
// Tasks and Robots.
func (g *Gateway) Start(ctx context.Context) error {
	g.running.Store(true)
	defer func() {
		g.running.Store(false)
		g.m.brokerUp.Set(0)
	}()
	removeHandlers, err := g.watchObjects(ctx)
	defer removeHandlers()
	if err != nil {
		return err
	}
	g.syncedAt.Store(int64(g.uptime()))
	g.assignRobots()
	g.log.Info("serving robots", "broker", g.mqtt.url.Redacted(), "robots", len(g.objects.robotIDs()))
	return g.serveRobots(ctx)
}

func (g *Gateway) serveRobots(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Reports are received until the connection is closed, and then written.
	reportCtx, stopReports := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReports()
	var wg sync.WaitGroup
	for range robotWorkers {
		wg.Go(func() { runWorker(ctx, g.robotQueue, g.syncRobot, g.logRetry) })
	}
	for range sliceWorkers {
		wg.Go(func() { runWorker(ctx, g.sliceQueue, g.syncSlice, g.logRetry) })
	}
	for range releaseWorkers {
		wg.Go(func() { runWorker(ctx, g.finalizerQueue, g.removeFinalizer, g.logRetry) })
	}
	for range secretWorkers {
		wg.Go(func() { runWorker(ctx, g.secretQueue, g.dispatchSecrets, g.logRetry) })
	}
	wg.Go(func() { runWorker(ctx, g.orderQueue, g.sendAgentOrder, g.logRetry) })
	for range journalWorkers {
		wg.Go(func() { g.readJournals(ctx) })
	}
	wg.Go(func() { g.reports.run(reportCtx) })
	wg.Go(func() { g.logs.run(ctx) })
	wg.Go(func() { g.taskLists.run(ctx) })
	wg.Go(func() { g.downlink.run(ctx) })
	wg.Go(func() { g.sweepRobots(ctx) })
	err := g.mqtt.run(ctx)
	cancel()
	stopReports()
	g.robotQueue.ShutDown()
	g.sliceQueue.ShutDown()
	g.finalizerQueue.ShutDown()
	g.secretQueue.ShutDown()
	g.orderQueue.ShutDown()
	g.restoration.queue.ShutDown()
	wg.Wait()
	return err
}

func (g *Gateway) logRetry(err error) { g.log.Error(err, "try again later") }

// runWorker processes items of the queue until ctx ends, and retries those that fail.
func runWorker[T comparable](ctx context.Context, q workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) error, failed func(error)) {
	for {
		key, shutdown := q.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		processItem(ctx, q, key, do, failed)
	}
}

func processItem[T comparable](ctx context.Context, q workqueue.TypedRateLimitingInterface[T], key T, do func(context.Context, T) error, failed func(error)) {
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

// lastProtocol returns the protocol of a robot. Empty: no message of it is known.
func (g *Gateway) lastProtocol(robotID string) string {
	return protocolOf(g.robots.stateOf(robotID), g.objects.robot(robotID))
}

// dispatchProtocol returns the protocol in which a robot gets dispatches. Empty: it gets
// none, because it has never sent a message or is revoked, which an external broker may
// not know. Its task list is still published, without tasks.
func (g *Gateway) dispatchProtocol(robotID string) string {
	if g.objects.isRevoked(robotID) {
		return ""
	}
	return g.lastProtocol(robotID)
}

// runsArrays reports whether the agent of a robot runs ranges and indexes of arrays.
func (g *Gateway) runsArrays(robotID string) bool {
	w, r := g.robots.stateOf(robotID), g.objects.robot(robotID)
	if !w.registered.IsZero() {
		return w.runsArrays
	}
	return r != nil && r.Status.Agent != nil && r.Status.Agent.RunsArrays
}

// hasCaughtUp reports whether a Task that is missing in the index is certainly deleted.
func (g *Gateway) hasCaughtUp() bool {
	at := g.syncedAt.Load()
	return at != 0 && g.uptime()-time.Duration(at) > catchUp
}

func (g *Gateway) sendMessage(robotID string, k wire.Kind, v any) bool {
	return g.sendExpiring(robotID, k, v, k.MessageExpiry())
}

// sendExpiring is sendMessage for a message that the broker drops after so many seconds. Nil: it never does.
func (g *Gateway) sendExpiring(robotID string, k wire.Kind, v any, expiry *uint32) bool {
	payload, err := wire.Encode(v)
	if err != nil {
		g.log.Error(err, "send", "robot", robotID, "kind", k)
		return false
	}
	return g.enqueueMessage(robotID, k, message{
		topic: wire.RobotTopic(robotID, k), payload: payload, expiry: expiry, connection: g.mqtt.currentConnection(),
	})
}

func (g *Gateway) publishToRobot(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool {
	return g.enqueueMessage(robotID, k, message{
		topic: wire.RobotTopic(robotID, k), payload: payload, retain: retain, expiry: k.MessageExpiry(), connection: connection,
	})
}

// publishDispatch publishes a dispatch as part of the trace of its attempt.
func (g *Gateway) publishDispatch(connection int64, robotID string, t *robotv1.Task, payload []byte) bool {
	m := message{topic: wire.RobotTopic(robotID, wire.KindDispatch), payload: payload, expiry: dispatchExpiry(g.now(), t), connection: connection}
	at := trace.AttemptContext(string(t.UID), t.Status.Attempt)
	if at.Sampled = g.cfg.Tracer.IsSampled(at); at.Sampled && wantedAction(t) == wire.ActionCreate {
		m.trace, m.enqueuedAt = at, g.now()
	}
	return g.enqueueMessage(robotID, wire.KindDispatch, m)
}

func (g *Gateway) enqueueMessage(robotID string, k wire.Kind, m message) bool {
	if !g.mqtt.enqueueMessage(robotID, m) {
		g.m.countDropped(k, dropQueueFull, 1)
		return false
	}
	g.m.sent.WithLabelValues(string(k)).Inc()
	return true
}

// dropLog counts and logs a piece of a log that was invalid or could not be stored.
func (g *Gateway) dropLog(robotID string, err error) {
	g.m.countDropped(wire.KindLogs, dropUnstoredLog, 1)
	if g.objects.robot(robotID) == nil {
		robotID = "" // unknown robots share one log line
	}
	if g.rateLimitedLog.Allow(robotID, g.now()) {
		g.log.Info("could not store a piece of a log; the robot sends it again", "robot", robotID, "reason", err.Error())
	}
}

// dropTaskList counts and logs a task list that exceeds the message size.
func (g *Gateway) dropTaskList(robotID string, tasks int) {
	g.m.countDropped(wire.KindState, dropTooLarge, 1)
	if g.rateLimitedLog.Allow(robotID, g.now()) {
		g.log.Info("a robot has more tasks than a message to it can name; lower its capacity", "robot", robotID, "tasks", tasks)
	}
}

// watchObjects watches Tasks, Robots and what orders to agents follow from, and returns once the index contains all of them.
// The returned function removes the event handlers.
func (g *Gateway) watchObjects(ctx context.Context) (removeHandlers func(), err error) {
	var removals []func()
	removeHandlers = func() {
		for _, f := range removals {
			f()
		}
	}
	var synced []toolscache.InformerSynced
	var taskVersion uint64
	for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&robotv1.Robot{}: handlerOf(g.handleRobotUpdate, g.handleRobotDelete),
		&robotv1.Task{}:  handlerOf(g.handleTaskUpdate, g.handleTaskDelete),
		// Orders to agents follow from them.
		&robotv1.Rollout{}:           handlerOf(g.handleRolloutUpdate, g.handleRolloutDelete),
		&robotv1.MaintenanceWindow{}: handlerOf(g.orders.windows.store, g.orders.windows.remove),
		// The slices are written by this server. It reads them when it starts, and notices a deletion.
		&robotv1.HeartbeatSlice{}: handlerOf(g.slices.store, g.slices.remove),
	} {
		informer, err := g.informers.GetInformer(ctx, object)
		if err != nil {
			return removeHandlers, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, ofTasks := object.(*robotv1.Task); ofTasks {
			// Before the handler is added, so that it gets all objects of the first list.
			if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return removeHandlers, fmt.Errorf("wait for the first list: %w", context.Cause(ctx))
			}
			taskVersion = storeVersion(informer)
		}
		reg, err := informer.AddEventHandler(handler)
		if err != nil {
			return removeHandlers, fmt.Errorf("watch %T: %w", object, err)
		}
		removals = append(removals, func() { _ = informer.RemoveEventHandler(reg) })
		synced = append(synced, reg.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return removeHandlers, fmt.Errorf("wait for the first list: %w", context.Cause(ctx))
	}
	g.objects.raiseVersion(taskVersion)
	return removeHandlers, nil
}

// storeVersion returns the resource version of an informer's store. It exceeds that of
// every object if newer ones were deleted. Zero: unknown.
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

func (g *Gateway) handleTaskUpdate(t *robotv1.Task) {
	if old, isNewer := g.objects.deliverTask(t); isNewer {
		g.onTaskChanged(old, t)
	} else {
		g.notifyTask(t.UID) // our own write has reached the cache
	}
}

func (g *Gateway) storeTask(t *robotv1.Task) {
	if old, isNewer := g.objects.storeWrittenTask(t); isNewer {
		g.onTaskChanged(old, t)
	}
}

func (g *Gateway) onTaskChanged(old, t *robotv1.Task) {
	if lifecycle.TaskState(t.Status.State) != lifecycle.TaskRunning {
		g.usage.forgetTask(t.UID)
	}
	g.taskLists.onTaskChanged(old, t)
	g.downlink.onTaskChanged(t.UID)
	g.logs.logStateChange(old, t)
	g.notifyTask(t.UID)
}

func (g *Gateway) handleTaskDelete(t *robotv1.Task) {
	g.usage.forgetTask(t.UID)
	if old := g.objects.removeTask(t); old != nil {
		g.taskLists.onTaskChanged(old, nil)
		g.downlink.onTaskRemoved(old)
		g.notifyTask(t.UID)
	}
}

// resendTask dispatches a running task again, if the agent speaks protocol v2: a legacy
// agent might start it again.
func (g *Gateway) resendTask(t *robotv1.Task) {
	if g.dispatchProtocol(t.CurrentRobot()) == robotv1.ProtocolV2 {
		g.downlink.sendTask(t, wire.ActionCreate)
	}
}

// handleRobotUpdate stores a Robot, and continues a registration that waits for
// approval.
func (g *Gateway) handleRobotUpdate(r *robotv1.Robot) {
	known, was := g.objects.robot(r.Name), g.objects.isRevoked(r.Name)
	if !g.objects.putRobot(r) {
		return
	}
	first := known == nil
	g.detectFormerManager(known, r)
	g.checks.schedule(r.Name, g.now())
	g.attributes.recordAttributes(r)
	if is := g.objects.isRevoked(r.Name); !first && is != was {
		g.onRevocationChanged(r.Name)
	}
	w := g.robots.stateOf(r.Name)
	if w.awaitsAnswer(g.now(), r) || w.prefetchDue(g.now(), r) != nil {
		g.robotQueue.Add(r.Name)
	}
	g.enqueueAgent(r.Name)
	if first {
		g.taskLists.resendList(r.Name)
		g.downlink.onRobotRegistered(r.Name, g.objects.tasksOn(r.Name), w.protocol == robotv1.ProtocolV1)
	}
}

// onRevocationChanged removes all tasks from the list of a robot that was revoked, and
// sends them when it is approved again.
func (g *Gateway) onRevocationChanged(robotID string) {
	g.taskLists.resendList(robotID)
	g.downlink.onRobotRegistered(robotID, g.objects.tasksOn(robotID), g.lastProtocol(robotID) == robotv1.ProtocolV1)
}

func (g *Gateway) handleRobotDelete(r *robotv1.Robot) {
	g.objects.removeRobot(r)
	g.slices.release(r)
	id := r.Spec.RobotID // the components' key
	if g.objects.robot(id) == nil {
		g.robots.markUnknown(id)
		g.taskLists.forgetRobot(id)
		g.rateLimitedLog.Forget(id)
		g.limits.forgetRobot(id)
		g.quotas.forgetRobot(id)
		g.attributes.forgetRobot(id)
	}
}
