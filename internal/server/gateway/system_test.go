package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/broker"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/server/logstore"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

const (
	namespace   = "default"
	waitTimeout = 15 * time.Second
)

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(robotv1.AddToScheme(s), corev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// informers creates real informers for a fake API server.
type informers struct {
	ctx context.Context
	api client.WithWatch
}

type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

func (i informers) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	list := func() client.ObjectList {
		switch object.(type) {
		case *robotv1.Robot:
			return &robotv1.RobotList{}
		case *robotv1.HeartbeatSlice:
			return &robotv1.HeartbeatSliceList{}
		case *robotv1.Rollout:
			return &robotv1.RolloutList{}
		case *robotv1.MaintenanceWindow:
			return &robotv1.MaintenanceWindowList{}
		}
		return &robotv1.TaskList{}
	}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, i.api.List(ctx, l)
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			return i.api.Watch(ctx, list())
		},
	}
	informer := toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(lw, noWatchList{}), object, 0, toolscache.Indexers{})
	go informer.Run(i.ctx.Done())
	return informer, nil
}

// system is a broker, a fake API server and a server that connects them.
type system struct {
	t        *testing.T
	tune     func(*Gateway) // changes a server before it starts; nil: nothing
	broker   *broker.Broker
	api      client.WithWatch
	url      string
	gateway  *Gateway
	stop     func()
	logs     logstore.Store // if nil, logs are dropped
	mu       sync.Mutex
	warnings []string
	writes   map[string]int // status writes by object name
	refuse   int            // number of status writes to reject
	forbids  bool           // reads of Secrets
	reads    int            // of Secrets
	log      []string       // log lines of the server
}

// start starts a system with these objects.
func start(t *testing.T, objects ...client.Object) *system {
	t.Helper()
	return startWith(t, Config{}, objects...)
}

func startWith(t *testing.T, cfg Config, objects ...client.Object) *system {
	t.Helper()
	return startTuned(t, cfg, nil, objects...)
}

func startTuned(t *testing.T, cfg Config, tune func(*Gateway), objects ...client.Object) *system {
	t.Helper()
	s := &system{t: t, tune: tune, writes: map[string]int{}}
	files, err := logstore.NewFiles(t.TempDir(), logstore.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s.logs = files
	s.api = fakeapi.NewBuilder(scheme(t)).
		WithStatusSubresource(&robotv1.Task{}, &robotv1.Robot{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: s.updateStatus, Get: s.read, Update: refuseTaskUpdate}).Build()
	s.startBroker("127.0.0.1:0")
	t.Cleanup(s.stopBroker)
	s.url = s.broker.URL()
	s.startServer(cfg)
	return s
}

// startBroker starts the broker; stopBroker stops it.
func (s *system) startBroker(address string) {
	s.t.Helper()
	s.broker = broker.New(broker.Config{Listen: address})
	if err := s.broker.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) stopBroker() {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := s.broker.Stop(ctx); err != nil {
		s.t.Error(err)
	}
}

// refuseTaskUpdate is admission, for a Task whose spec an update would write in another form.
func refuseTaskUpdate(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	if _, is := o.(*robotv1.Task); is {
		return errors.New("the server may not change what a Task runs")
	}
	return c.Update(ctx, o, opts...)
}

// updateStatus counts status writes and rejects as many as the test sets.
func (s *system) updateStatus(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s.mu.Lock()
	s.writes[o.GetName()]++
	refuse := s.refuse > 0
	if refuse {
		s.refuse--
	}
	s.mu.Unlock()
	if refuse {
		return errors.New("the API server is unavailable")
	}
	return c.SubResource(sub).Update(ctx, o, opts...)
}

// read rejects reads of Secrets if the test sets it.
func (s *system) read(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	_, secret := o.(*corev1.Secret)
	s.mu.Lock()
	forbids := s.forbids
	if secret {
		s.reads++
	}
	s.mu.Unlock()
	if secret && forbids {
		return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New("the server has no role that allows it"))
	}
	return c.Get(ctx, key, o, opts...)
}

func (s *system) writesTo(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[name]
}

// startServer starts a server; stop stops it.
func (s *system) startServer(cfg Config) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cfg.MQTTURL = s.url
	cfg.BacklogWindow = cmp.Or(cfg.BacklogWindow, 50*time.Millisecond)
	if cfg.Tokens == nil { // tests of authentication set their own
		cfg.AllowLegacy, cfg.AllowAnonymous = true, true
	}
	b, err := New(cfg, Cluster{Client: s.api, APIReader: s.api, Informers: informers{ctx, s.api}, Warn: s.warn, Logs: s.logs}, prometheus.NewRegistry(), funcr.New(s.recordLog, funcr.Options{Verbosity: 100}))
	if err != nil {
		s.t.Fatal(err)
	}
	b.downlink.repeatPause, b.downlink.legacyGrace = 50*time.Millisecond, 500*time.Millisecond
	if s.tune != nil {
		s.tune(b)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	var once sync.Once
	s.gateway = b
	s.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					s.t.Errorf("the server ended with: %v", err)
				}
			case <-time.After(waitTimeout):
				s.t.Error("the server does not stop")
			}
		})
	}
	s.t.Cleanup(s.stop)
	eventually(s.t, "the server is connected to the broker", func() bool { return b.running.Load() && b.mqtt.checkUp() == nil })
}

func (s *system) warn(o client.Object, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, fmt.Sprintf("%s: %s: %s", o.GetName(), reason, message))
}

func (s *system) secretReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *system) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *system) logged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

func (s *system) recordLog(_, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, line)
}

func (s *system) warned() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.warnings...)
}

// approveRobots acts as the manager: every robot becomes Online as soon as it is created.
func (s *system) approveRobots() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	go func() {
		for ctx.Err() == nil {
			var all robotv1.RobotList
			_ = s.api.List(ctx, &all)
			for i := range all.Items {
				r := &all.Items[i]
				if lifecycle.RobotPhase(r.Status.Phase) == lifecycle.RobotPending {
					r.Status.Phase = string(lifecycle.RobotOnline)
					_ = s.api.Status().Update(ctx, r)
				}
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
}

func (s *system) robot(id string) *robotv1.Robot {
	var r robotv1.Robot
	if err := s.api.Get(s.t.Context(), types.NamespacedName{Namespace: namespace, Name: id}, &r); err != nil {
		return nil
	}
	return &r
}

func (s *system) task(name string) *robotv1.Task {
	var t robotv1.Task
	if err := s.api.Get(s.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &t); err != nil {
		return nil
	}
	return &t
}

func (s *system) state(name string) lifecycle.TaskState {
	if t := s.task(name); t != nil {
		return lifecycle.TaskState(t.Status.State)
	}
	return ""
}

// createTask creates a task that is bound to a robot already.
func (s *system) createTask(t *robotv1.Task) *robotv1.Task {
	s.t.Helper()
	if err := s.api.Create(s.t.Context(), t); err != nil {
		s.t.Fatal(err)
	}
	return t
}

// editStatus changes a task's status as the manager would.
func (s *system) editStatus(name string, to func(*robotv1.TaskStatus)) {
	s.t.Helper()
	eventually(s.t, "the manager has written "+name, func() bool {
		t := s.task(name)
		to(&t.Status)
		return s.api.Status().Update(s.t.Context(), t) == nil
	})
}

func (s *system) condition(robot, kind string) string {
	r := s.robot(robot)
	if r == nil {
		return ""
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, kind); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

// newBoundTask returns a task that is ready to be dispatched to a robot.
func newBoundTask(name, robot string) *robotv1.Task {
	return &robotv1.Task{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uuid.NewUUID()},
		Spec: robotv1.TaskSpec{
			TaskDefinition: robotv1.TaskDefinition{Name: name, Driver: "exec", Config: robotv1.TaskConfig{ExecConfig: &robotv1.ExecConfig{Command: "true"}}},
			TargetRobot:    robot,
		},
		Status: robotv1.TaskStatus{
			State: string(lifecycle.TaskDispatching), Attempt: 1,
			Attempts: []robotv1.TaskAttempt{{Attempt: 1, Robot: robot, State: string(lifecycle.TaskDispatching)}},
		},
	}
}
