package gateway

import (
	"cmp"
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
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/platform/tracing"
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
	// bounds the age of the lastHeartbeatTime of a connected robot. Default: 5 minutes.
	OfflineAfter time.Duration
	// BatchWindow delays writing a "running" report so that a "finished" report that
	// follows can share the write. Default: 50 ms.
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
}

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, "k8s4r-server")
	c.RobotNamespace = cmp.Or(c.RobotNamespace, "default")
	c.OfflineAfter = cmp.Or(c.OfflineAfter, 5*time.Minute)
	c.BatchWindow = cmp.Or(c.BatchWindow, 50*time.Millisecond)
	c.UnresponsiveAfter = cmp.Or(c.UnresponsiveAfter, unresponsiveAfter)
	c.BacklogWindow = cmp.Or(c.BacklogWindow, 2*time.Second)
	return c
}

// Cluster is the gateway's access to the API server.
type Cluster struct {
	Client client.Client
	// APIReader reads without the cache.
	APIReader client.Reader
	// Informers of Tasks and Robots, started by the caller.
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
	log       logr.Logger
	m         *metrics

	objects    *objectIndex
	robots     *robotStates
	usage      *usageTracker
	mqtt       *mqttClient
	acks       *ackBatcher
	reports    *reportWriter
	downlink   *downlink
	taskLists  *taskLists
	logs       *logWriter
	notifyTask func(types.UID)
	attributes *attributeWatcher
	// rateLimitedLog remembers known robots only, so their number bounds it.
	rateLimitedLog limits.Interval
	limits         *limits.Limits
	subscribeMu    sync.Mutex // serializes onSubscribed
	robotQueue     workqueue.TypedRateLimitingInterface[string]
	finalizerQueue workqueue.TypedRateLimitingInterface[types.UID]
	secretQueue    workqueue.TypedRateLimitingInterface[types.UID] // tasks whose Secrets are to be read for a dispatch
	syncedAt       atomic.Int64                                    // when the index was complete, in Unix nanoseconds; zero: not yet
	running        atomic.Bool
}

const (
	// robotWorkers is the number of concurrent writes of Robots.
	robotWorkers = 4
	// releaseWorkers is the number of concurrent removals of finalizers.
	releaseWorkers = 4
	// secretWorkers is the number of concurrent reads of Secrets.
	secretWorkers = 4
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
	b := &Gateway{
		cfg: cfg, client: cluster.Client, apiReader: cluster.APIReader, informers: cluster.Informers, warn: cluster.Warn,
		now: time.Now, log: log, m: m, objects: newObjectIndex(), limits: newLimits(), rateLimitedLog: limits.Interval{Period: logInterval}, robots: newRobotStates(cfg.IsPlaintextBroker()), usage: newUsageTracker(m), notifyTask: cluster.OnTaskChanged,
		robotQueue: newQueue[string](), finalizerQueue: newQueue[types.UID](), secretQueue: newQueue[types.UID](),
	}
	if b.mqtt, err = newMQTTClient(cfg.MQTTURL, cfg.ClientID, cfg.TLS, log); err != nil {
		return nil, err
	}
	if b.notifyTask == nil {
		b.notifyTask = func(types.UID) {}
	}
	b.connectComponents(cluster.Logs)
	return b, nil
}

func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](10*time.Millisecond, 10*time.Second))
}

// connectComponents gives each component the functions of others that it calls.
func (b *Gateway) connectComponents(logStore logstore.Store) {
	b.mqtt.receive = b.receive
	b.mqtt.tracer = b.cfg.Tracer
	b.acks = &ackBatcher{send: func(id string, a wire.Ack) { b.sendMessage(id, wire.KindAck, a) }}
	b.reports = &reportWriter{
		window: b.cfg.BatchWindow, now: b.now, objects: b.objects, live: b.apiReader, writer: b.client.Status(),
		sendAck: b.acks.ackTask, onWrite: b.storeTask, isGone: b.hasCaughtUp, tracer: b.cfg.Tracer, m: b.m, log: b.log,
	}
	b.reports.initQueues()
	b.logs = &logWriter{
		store: logStore, objects: b.objects, now: b.now, sendAck: b.acks.ackLog, onChange: b.notifyTask, isGone: b.hasCaughtUp, onError: b.dropLog, m: b.m, log: b.log,
	}
	b.logs.initWorkers()
	b.taskLists = &taskLists{now: b.now, objects: b.objects, protocolOf: b.lastProtocol, publish: b.publishToRobot, onTooLarge: b.dropTaskList, upConnection: b.mqtt.upConnection, currentConnection: b.mqtt.currentConnection}
	b.taskLists.initMaps()
	b.downlink = &downlink{
		now: b.now, objects: b.objects, protocolOf: b.dispatchProtocol, dispatchEpoch: b.taskLists.dispatchEpoch, publish: b.publishDispatch,
		releaseTask: b.finalizerQueue.Add, addReport: b.reports.addReport, onOverdue: b.recordOverdue, fetchSecrets: b.secretQueue.Add, log: b.log,
		upConnection: b.mqtt.upConnection, repeatPause: minRepeat, legacyGrace: releaseAfter,
	}
	b.downlink.initMaps()
	b.attributes = &attributeWatcher{objects: b.objects, send: b.resendTask}
	b.mqtt.onSubscribed, b.mqtt.onUp = b.onSubscribed, b.onConnectionUp
}

// onConnectionUp sends what was queued while the connection was down.
func (b *Gateway) onConnectionUp() {
	b.downlink.resendAll()
	b.taskLists.wakeUp()
}

// onSubscribed publishes all task lists, because the broker may have lost its retained
// messages. Lists of legacy agents wait if the broker may have queued messages of
// theirs.
func (b *Gateway) onSubscribed(connection int64, backlog bool) {
	b.subscribeMu.Lock()
	defer b.subscribeMu.Unlock()
	if b.mqtt.currentConnection() != connection {
		return // a newer connection has its own backlog
	}
	settled := b.now()
	if backlog {
		settled = settled.Add(b.cfg.BacklogWindow)
	}
	b.downlink.holdLegacyAgents(settled)
	b.taskLists.sendAll(connection, settled)
}

// NeedLeaderElection reports that only one server is connected to the broker at a time.
func (b *Gateway) NeedLeaderElection() bool { return true }

// Ready returns nil while the server waits for leadership, and while it is connected to
// the broker.
func (b *Gateway) Ready() error {
	if !b.running.Load() {
		return nil
	}
	return b.mqtt.checkUp()
}

// Start serves until ctx ends. It connects to the broker once its index contains all
// Tasks and Robots.
func (b *Gateway) Start(ctx context.Context) error {
	b.running.Store(true)
	defer func() {
		b.running.Store(false)
		b.m.brokerUp.Set(0)
	}()
	removeHandlers, err := b.watchObjects(ctx)
	defer removeHandlers()
	if err != nil {
		return err
	}
	b.syncedAt.Store(b.now().UnixNano())
	b.log.Info("serving robots", "broker", b.mqtt.url.Redacted(), "robots", len(b.objects.robotIDs()))
	return b.serveRobots(ctx)
}

func (b *Gateway) serveRobots(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Reports are received until the connection is closed, and then written.
	reportCtx, stopReports := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReports()
	var wg sync.WaitGroup
	for range robotWorkers {
		wg.Go(func() { runWorker(ctx, b.robotQueue, b.syncRobot, b.logRetry) })
	}
	for range releaseWorkers {
		wg.Go(func() { runWorker(ctx, b.finalizerQueue, b.removeFinalizer, b.logRetry) })
	}
	for range secretWorkers {
		wg.Go(func() { runWorker(ctx, b.secretQueue, b.dispatchSecrets, b.logRetry) })
	}
	wg.Go(func() { b.reports.run(reportCtx) })
	wg.Go(func() { b.logs.run(ctx) })
	wg.Go(func() { b.taskLists.run(ctx) })
	wg.Go(func() { b.downlink.run(ctx) })
	wg.Go(func() { b.sweepRobots(ctx) })
	err := b.mqtt.run(ctx)
	cancel()
	stopReports()
	b.robotQueue.ShutDown()
	b.finalizerQueue.ShutDown()
	b.secretQueue.ShutDown()
	wg.Wait()
	return err
}

func (b *Gateway) logRetry(err error) { b.log.Error(err, "try again later") }

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

// sweepRobots periodically checks all robots: heartbeat times that need a write,
// unconfirmed last wills, and robots that have become silent.
func (b *Gateway) sweepRobots(ctx context.Context) {
	tick := time.NewTicker(max(10*time.Millisecond, min(time.Second, b.cfg.OfflineAfter/20)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.sweepRobotsOnce(b.now())
		}
	}
}

func (b *Gateway) sweepRobotsOnce(now time.Time) {
	b.robots.forgetUnknown(func(id string) bool { return b.objects.robot(id) != nil }, now, b.cfg.OfflineAfter)
	connected := 0
	for _, id := range b.objects.robotIDs() {
		r := b.objects.robot(id)
		if r != nil && meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionConnected) {
			connected++
		}
		if r != nil && (b.detectDisconnect(now, id, r) || isHeartbeatDue(now, id, r.Status, b.robots.stateOf(id), b.cfg.OfflineAfter)) {
			b.robotQueue.Add(id)
		}
	}
	b.m.robots.Set(float64(connected))
	b.m.brokerUp.Set(boolGauge(b.mqtt.checkUp() == nil))
}

// boolGauge returns a bool as the value of a gauge.
func boolGauge(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// detectDisconnect marks a robot as disconnected if it is silent for too long, and
// reports whether it did. Only connected robots are checked, and only after this server
// has listened for long enough.
func (b *Gateway) detectDisconnect(now time.Time, id string, r *robotv1.Robot) (gone bool) {
	since := time.Unix(0, b.syncedAt.Load())
	if at := r.Status.LastHeartbeatTime; at != nil {
		since = laterOf(since, at.Time)
	}
	connected := meta.IsStatusConditionTrue(r.Status.Conditions, robotv1.ConditionConnected)
	b.robots.updateState(id, true, func(w *robotState) {
		gone = w.confirmLastWill(now) || connected && w.markSilent(now, since, b.cfg.OfflineAfter)
	})
	return gone
}

// lastProtocol returns the protocol of a robot. Empty: no message of it is known.
func (b *Gateway) lastProtocol(robotID string) string {
	return protocolOf(b.robots.stateOf(robotID), b.objects.robot(robotID))
}

// dispatchProtocol returns the protocol in which a robot gets dispatches. Empty: it gets
// none, because it has never sent a message or is revoked, which an external broker may
// not know. Its task list is still published, without tasks.
func (b *Gateway) dispatchProtocol(robotID string) string {
	if b.objects.isRevoked(robotID) {
		return ""
	}
	return b.lastProtocol(robotID)
}

// hasCaughtUp reports whether a Task that is missing in the index is certainly deleted.
func (b *Gateway) hasCaughtUp() bool {
	at := b.syncedAt.Load()
	return at != 0 && b.now().Sub(time.Unix(0, at)) > catchUp
}

func (b *Gateway) sendMessage(robotID string, k wire.Kind, v any) bool {
	payload, err := wire.Encode(v)
	if err != nil {
		b.log.Error(err, "send", "robot", robotID, "kind", k)
		return false
	}
	return b.publishToRobot(b.mqtt.currentConnection(), robotID, k, payload, false)
}

func (b *Gateway) publishToRobot(connection int64, robotID string, k wire.Kind, payload []byte, retain bool) bool {
	return b.enqueueMessage(robotID, k, message{
		topic: wire.RobotTopic(robotID, k), payload: payload, retain: retain, expiry: k.MessageExpiry(), connection: connection,
	})
}

// publishDispatch publishes a dispatch as part of the trace of its attempt.
func (b *Gateway) publishDispatch(connection int64, robotID string, t *robotv1.Task, payload []byte) bool {
	m := message{topic: wire.RobotTopic(robotID, wire.KindDispatch), payload: payload, expiry: wire.KindDispatch.MessageExpiry(), connection: connection}
	at := trace.AttemptContext(string(t.UID), t.Status.Attempt)
	if at.Sampled = b.cfg.Tracer.IsSampled(at); at.Sampled && wantedAction(t) == wire.ActionCreate {
		m.trace, m.enqueuedAt = at, b.now()
	}
	return b.enqueueMessage(robotID, wire.KindDispatch, m)
}

func (b *Gateway) enqueueMessage(robotID string, k wire.Kind, m message) bool {
	if !b.mqtt.enqueueMessage(robotID, m) {
		b.countDropped(k, "queue is full")
		return false
	}
	b.m.sent.WithLabelValues(string(k)).Inc()
	return true
}

// dropLog counts and logs a piece of a log that was invalid or could not be stored.
func (b *Gateway) dropLog(robotID string, err error) {
	b.countDropped(wire.KindLogs, "not taken")
	if b.objects.robot(robotID) == nil {
		robotID = "" // unknown robots share one log line
	}
	if b.rateLimitedLog.Allow(robotID, b.now()) {
		b.log.Info("could not take in a log; the robot will send it again", "robot", robotID, "reason", err.Error())
	}
}

// dropTaskList counts and logs a task list that exceeds the message size.
func (b *Gateway) dropTaskList(robotID string, tasks int) {
	b.countDropped(wire.KindState, "too large")
	if b.rateLimitedLog.Allow(robotID, b.now()) {
		b.log.Info("a robot has more tasks than a message to it can name; lower its capacity", "robot", robotID, "tasks", tasks)
	}
}

// watchObjects watches Tasks and Robots, and returns once the index contains all of them.
// The returned function removes the event handlers.
func (b *Gateway) watchObjects(ctx context.Context) (removeHandlers func(), err error) {
	var removals []func()
	removeHandlers = func() {
		for _, f := range removals {
			f()
		}
	}
	var synced []toolscache.InformerSynced
	var taskVersion uint64
	for object, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&robotv1.Robot{}: handlerOf(b.handleRobotUpdate, b.handleRobotDelete),
		&robotv1.Task{}:  handlerOf(b.handleTaskUpdate, b.handleTaskDelete),
	} {
		informer, err := b.informers.GetInformer(ctx, object)
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
	b.objects.raiseVersion(taskVersion)
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

func (b *Gateway) handleTaskUpdate(t *robotv1.Task) {
	if old, isNewer := b.objects.deliverTask(t); isNewer {
		b.onTaskChanged(old, t)
	} else {
		b.notifyTask(t.UID) // our own write has reached the cache
	}
}

func (b *Gateway) storeTask(t *robotv1.Task) {
	if old, isNewer := b.objects.storeWrittenTask(t); isNewer {
		b.onTaskChanged(old, t)
	}
}

func (b *Gateway) onTaskChanged(old, t *robotv1.Task) {
	if lifecycle.TaskState(t.Status.State) != lifecycle.TaskRunning {
		b.usage.forgetTask(t.UID)
	}
	b.taskLists.onTaskChanged(old, t)
	b.downlink.onTaskChanged(t.UID)
	b.logs.logStateChange(old, t)
	b.notifyTask(t.UID)
}

func (b *Gateway) handleTaskDelete(t *robotv1.Task) {
	b.usage.forgetTask(t.UID)
	if old := b.objects.removeTask(t); old != nil {
		b.taskLists.onTaskChanged(old, nil)
		b.downlink.onTaskRemoved(old)
		b.notifyTask(t.UID)
	}
}

// resendTask dispatches a running task again, if the agent speaks protocol v2: a legacy
// agent might start it again.
func (b *Gateway) resendTask(t *robotv1.Task) {
	if b.dispatchProtocol(t.CurrentRobot()) == robotv1.ProtocolV2 {
		b.downlink.sendTask(t, wire.ActionCreate)
	}
}

// handleRobotUpdate stores a Robot, and continues a registration that waits for
// approval.
func (b *Gateway) handleRobotUpdate(r *robotv1.Robot) {
	first, was := b.objects.robot(r.Name) == nil, b.objects.isRevoked(r.Name)
	if !b.objects.putRobot(r) {
		return
	}
	b.attributes.recordAttributes(r)
	if is := b.objects.isRevoked(r.Name); !first && is != was {
		b.onRevocationChanged(r.Name)
	}
	w := b.robots.stateOf(r.Name)
	if w.awaitsResponse {
		b.robotQueue.Add(r.Name)
	}
	if first {
		b.taskLists.resendList(r.Name)
		b.downlink.onRobotRegistered(r.Name, b.objects.tasksOn(r.Name), w.protocol == robotv1.ProtocolV1)
	}
}

// onRevocationChanged removes all tasks from the list of a robot that was revoked, and
// sends them when it is approved again.
func (b *Gateway) onRevocationChanged(robotID string) {
	b.taskLists.resendList(robotID)
	b.downlink.onRobotRegistered(robotID, b.objects.tasksOn(robotID), b.lastProtocol(robotID) == robotv1.ProtocolV1)
}

func (b *Gateway) handleRobotDelete(r *robotv1.Robot) {
	b.objects.removeRobot(r)
	id := r.Spec.RobotID // the components' key
	if b.objects.robot(id) == nil {
		b.taskLists.forgetRobot(id)
		b.rateLimitedLog.Forget(id)
		b.limits.Forget(id)
		b.attributes.forgetRobot(id)
	}
}
