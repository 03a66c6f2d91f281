// Package controllers tests the manager against a real API server. The tests act as the server and
// the robots.
//
// Starting an API server takes seconds of a processor, so tests share a few (sharedServer). Tests with
// the same configuration also share a manager (share); one that restarts its manager, or configures
// it in its own way, starts one for its namespaces alone (startApart). Cases of one test run at once,
// each in a namespace of its own (runCases). Robot ids count among all namespaces of a manager: tests
// that share one use different ids.
package controllers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

func init() {
	ctrl.SetLogger(klog.Background())
}

// sharedServer names an API server that several tests use.
type sharedServer string

const (
	// fleetServer has a manager with all controllers.
	fleetServer sharedServer = "fleet"
	// podServer has a manager of pod jobs. Admission tests write all other kinds, which no manager
	// reconciles.
	podServer sharedServer = "pods"
	// flowServer has a manager of flows, whose jobs the tests play. Tests create Leases of other
	// operators on it, and replace the policy of RayClusters.
	flowServer sharedServer = "flows"
	// rayServer has a manager of RayClusters and one of pod jobs.
	rayServer sharedServer = "ray"
	// apartServer has only managers that reconcile the namespaces of one test (startApart).
	apartServer sharedServer = "apart"
	// changedServer is for tests that change definitions of kinds, each that of another kind. It has
	// only managers that reconcile the namespaces of one test (startApart).
	changedServer sharedServer = "changed"
)

// Systems that several tests share.
var (
	process testing.TB // cleans up when all tests have ended
	shared  = struct {
		sync.Mutex
		systems map[string]func() *system // by server, and by server and controllers
	}{systems: map[string]func() *system{}}
)

func TestMain(m *testing.M) {
	testkit.UseTemplateAlways()
	status := 0
	failed := testkit.RunProgram(func(t testing.TB) {
		process = t
		status = m.Run()
	})
	os.Exit(max(status, failed))
}

// share returns a shared server with a manager of all namespaces, which the first of its tests starts.
// Tests must not stop that manager.
func share(t *testing.T, server sharedServer, cfg manager.Config) *system {
	t.Helper()
	all := *shareServer(t, server)
	return startOnce(t, fmt.Sprintf("%s %v", server, cfg.Controllers), func() *system {
		all.t = process
		all.manage(cfg)
		return &all
	})
}

// shareServer returns a shared server, which the first of its tests starts, for the test alone to
// start managers that reconcile these namespaces. If there are none, the test starts no manager.
func shareServer(t *testing.T, server sharedServer, namespaces ...string) *system {
	t.Helper()
	testkit.BinaryPath(t, "k8s4r") // fails this test, and not the process
	s := *startOnce(t, string(server), func() *system { return startServer(process) })
	s.t, s.namespaces = t, namespaces
	return &s
}

// startApart starts a manager that reconciles these namespaces of a shared server. The test may stop
// it and start another.
func startApart(t *testing.T, server sharedServer, cfg manager.Config, namespaces ...string) *system {
	t.Helper()
	s := shareServer(t, server, namespaces...)
	s.manage(cfg)
	return s
}

// startOnce returns what the first call with that name started.
func startOnce(t *testing.T, name string, start func() *system) *system {
	t.Helper()
	shared.Lock()
	if shared.systems[name] == nil {
		shared.systems[name] = sync.OnceValue(func() *system { return tryStart(start) })
	}
	get := shared.systems[name]
	shared.Unlock()
	s := get()
	if s == nil {
		t.Fatalf("the shared system %s did not start; the first test that uses it has printed the error", name)
	}
	return s
}

// tryStart calls start in a goroutine of its own. It returns nil if starting fails: Fatal of process
// would otherwise end the goroutine of the test that happens to be the first, which then panics.
func tryStart(start func() *system) *system {
	started := make(chan *system, 1)
	go func() {
		defer close(started)
		started <- start()
	}()
	return <-started
}

// fleetConfig is the configuration of the system "fleet": all controllers, and robots that stay
// online although they send no heartbeats.
var fleetConfig = manager.Config{OfflineAfter: time.Hour}

// testCase is one behaviour, tested in a namespace of its own.
type testCase[S any] struct {
	name string
	run  func(S)
}

// runCases runs all cases at once. in creates the namespace of a case.
func runCases[S any](t *testing.T, prefix string, in func(t *testing.T, name string) S, cases []testCase[S]) {
	t.Helper()
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(in(t, caseNamespace(prefix, i)))
		})
	}
}

// caseNamespace returns the namespace of a case of runCases.
func caseNamespace(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// caseNamespaces returns the namespaces of the first n cases.
func caseNamespaces(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, caseNamespace(prefix, i))
	}
	return names
}

// runCasesInTurn runs cases that stop the manager one after another.
func runCasesInTurn[S any](t *testing.T, prefix string, in func(t *testing.T, name string) S, cases []testCase[S]) {
	t.Helper()
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(in(t, caseNamespace(prefix, i))) })
	}
}

// system is an API server with the manager running against it.
type system struct {
	t      testing.TB
	up     *testkit.Up
	config *rest.Config
	client.WithWatch
	namespaces []string // those that the managers reconcile; empty: all
	stop       func()   // stops the manager
}

// startServer starts an API server without a manager.
func startServer(t testing.TB) *system {
	t.Helper()
	s := &system{t: t, up: testkit.StartUp(t, testkit.ControlPlaneOnly...)}
	s.config = s.up.RESTConfig()
	var err error
	if s.WithWatch, err = client.NewWithWatch(s.config, client.Options{Scheme: manager.NewScheme()}); err != nil {
		t.Fatal(err)
	}
	return s
}

// manage starts a manager. After stop it restarts the manager. It acts as a service account that has
// the roles of its controllers and no others. One that creates Tasks acts as k8s4r-manager, by whose
// name admission knows that they are from a Job.
func (s *system) manage(cfg manager.Config) {
	s.t.Helper()
	if len(s.namespaces) > 0 {
		cfg.Namespaces = s.namespaces
	}
	skip := true
	opts := ctrl.Options{
		Scheme: manager.NewScheme(), Cache: manager.CacheOptions(cfg.Namespaces...), Controller: manager.ControllerOptions(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	}
	opts.Controller.SkipNameValidation = &skip
	config := s.managerConfig(cfg)
	if slices.Contains(manager.RolesOf(cfg.Controllers), manager.CommonRole+"-robots") {
		config.Impersonate.UserName = "system:serviceaccount:k8s4r-system:k8s4r-manager"
	}
	mgr, err := ctrl.NewManager(config, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := manager.AddControllers(mgr, cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	var once sync.Once
	s.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				s.t.Errorf("manager: %v", err)
			}
		})
	}
	s.t.Cleanup(s.stop)
}

// managerConfig returns a configuration of requests of a service account that has the roles of the
// controllers, once they are in force.
func (s *system) managerConfig(cfg manager.Config) *rest.Config {
	s.t.Helper()
	roles := manager.RolesOf(cfg.Controllers)
	account := "manager"
	for _, role := range roles {
		account += strings.TrimPrefix(role, manager.CommonRole)
	}
	user := "system:serviceaccount:k8s4r-system:" + account
	for _, role := range append([]string{manager.CommonRole}, roles...) {
		err := s.Create(context.Background(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account + "-as-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.t.Fatal(err)
		}
	}
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(config, client.Options{Scheme: manager.NewScheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	testkit.EventuallyNoError(s.t, waitTimeout, "the roles are in force", func() error {
		return manager.CheckRoles(context.Background(), c, cfg)
	})
	return config
}

// namespace creates a namespace for one test.
func (s *system) namespace(t *testing.T, name string) *space {
	t.Helper()
	if len(s.namespaces) > 0 && !slices.Contains(s.namespaces, name) {
		t.Fatalf("namespace %s: the manager of this test reconciles only %v; pass the name to startApart", name, s.namespaces)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return &space{T: t, system: s, name: name}
}

// warningRecorder records the warnings of the API server.
type warningRecorder struct {
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
}

func (w *warningRecorder) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.warnings)
}

// withWarnings returns the same system with a client that records warnings in w.
func (s *system) withWarnings(w *warningRecorder) *system {
	s.t.Helper()
	config := rest.CopyConfig(s.config)
	config.WarningHandler = w
	c, err := client.NewWithWatch(config, client.Options{Scheme: manager.NewScheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	return &system{t: s.t, config: config, WithWatch: c, namespaces: s.namespaces, stop: s.stop}
}

// space is a namespace and the test that works in it.
type space struct {
	*testing.T
	*system
	name string
	// probes is the number of clusters that were created to show that the controller has passed
	// an earlier event.
	probes int
}

func (s *space) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.name, Name: name}
}

// robots registers robots, as the server does.
func (s *space) robots(names ...string) {
	s.Helper()
	s.robotsOf(v1alpha1.RobotSpec{}, names...)
}

// limited registers robots that run at most that many tasks at a time. The limit is set on
// creation, because the scheduler could see a later update after a job that follows it.
func (s *space) limited(tasks string, names ...string) {
	s.Helper()
	s.robotsOf(v1alpha1.RobotSpec{Capacity: capacity("tasks", tasks)}, names...)
}

func (s *space) robotsOf(spec v1alpha1.RobotSpec, names ...string) {
	s.Helper()
	for _, name := range names {
		r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: *spec.DeepCopy()}
		r.Spec.RobotID = name
		s.must(s.Create(s.Context(), r))
		s.recordHeartbeat(name)
	}
	for _, name := range names {
		s.awaitPhase(name, lifecycle.RobotOnline)
	}
}

// recordHeartbeat writes a heartbeat to the status of a robot.
func (s *space) recordHeartbeat(name string) {
	s.Helper()
	s.updateRobotStatus(name, func(st *v1alpha1.RobotStatus) {
		now := metav1.NowMicro()
		st.LastHeartbeatTime = &now
		st.Agent = &v1alpha1.AgentInfo{Protocol: v1alpha1.ProtocolV2}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1alpha1.ConditionConnected, Status: "True", Reason: "Test"})
	})
}

// updateRobotStatus changes a robot's status, as the server does.
func (s *space) updateRobotStatus(name string, f func(*v1alpha1.RobotStatus)) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "write status of robot "+name, func() error {
		var r v1alpha1.Robot
		if err := s.Get(s.Context(), s.key(name), &r); err != nil {
			return err
		}
		f(&r.Status)
		return s.Status().Update(s.Context(), &r)
	})
}

func (s *space) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *space) awaitPhase(name string, want lifecycle.RobotPhase) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("robot %s is %s", name, want), func() error {
		var r v1alpha1.Robot
		if err := s.Get(s.Context(), s.key(name), &r); err != nil {
			return err
		}
		if r.Status.Phase != string(want) {
			return fmt.Errorf("phase %q, message %q", r.Status.Phase, r.Status.Message)
		}
		return nil
	})
}

// job creates a Job of groups.
func (s *space) job(name string, groups ...v1alpha1.TaskGroupDefinition) {
	s.Helper()
	s.must(s.Create(s.Context(), &v1alpha1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		Spec:       v1alpha1.JobSpec{TaskGroups: groups},
	}))
}

func group(name string, count int32, tasks ...string) v1alpha1.TaskGroupDefinition {
	g := v1alpha1.TaskGroupDefinition{Name: name}
	g.Count = &count
	for _, t := range tasks {
		g.Tasks = append(g.Tasks, v1alpha1.TaskDefinition{
			Name: t, Driver: v1alpha1.DriverExec,
			Config: v1alpha1.TaskConfig{ExecConfig: &v1alpha1.ExecConfig{Command: "true"}},
		})
	}
	return g
}

func (s *space) awaitJob(name string, want lifecycle.JobState) *v1alpha1.Job {
	s.Helper()
	var j v1alpha1.Job
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("job %s is %s", name, want), func() error {
		if err := s.Get(s.Context(), s.key(name), &j); err != nil {
			return err
		}
		if j.Status.State != string(want) {
			return fmt.Errorf("state %q, %s, %+v", j.Status.State, j.Status.StatusDescription, j.Status.TaskCounts)
		}
		return nil
	})
	return &j
}

func (s *space) tasks() []v1alpha1.Task {
	s.Helper()
	var list v1alpha1.TaskList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name)))
	return list.Items
}

func (s *space) task(name string) *v1alpha1.Task {
	s.Helper()
	var t v1alpha1.Task
	s.must(s.Get(s.Context(), s.key(name), &t))
	return &t
}

func (s *space) awaitTask(name string, want lifecycle.TaskState) *v1alpha1.Task {
	s.Helper()
	var t v1alpha1.Task
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("task %s is %s", name, want), func() error {
		if err := s.Get(s.Context(), s.key(name), &t); err != nil {
			return err
		}
		if got := lifecycle.TaskState(t.Status.State).OrPending(); got != want {
			return fmt.Errorf("state %q, reason %q, message %q", got, t.Status.Reason, t.Status.Message)
		}
		return nil
	})
	return &t
}

// report writes reports of a robot about a Task, as the server does.
func (s *space) report(name string, signals ...lifecycle.TaskSignal) {
	s.Helper()
	for _, g := range signals {
		testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("report %s of task %s", g, name), func() error {
			var t v1alpha1.Task
			if err := s.Get(s.Context(), s.key(name), &t); err != nil {
				return err
			}
			if !carry(&t, g, "") {
				return fmt.Errorf("state %q does not accept %s", t.Status.State, g)
			}
			return s.Status().Update(s.Context(), &t)
		})
	}
}

// carry applies a signal to a Task's status, as the server does. It reports whether the state
// accepts the signal.
func carry(t *v1alpha1.Task, g lifecycle.TaskSignal, reason string) bool {
	to, ok := lifecycle.StepTask(lifecycle.TaskState(t.Status.State), g)
	if !ok {
		return false
	}
	now := metav1.NowMicro()
	t.Status.State, t.Status.Reason = string(to), reason
	if to == lifecycle.TaskRunning {
		t.Status.StartedAt = &now
	} else if a := t.Status.FindAttempt(t.Status.Attempt); a != nil {
		a.FinishedAt = &now
	}
	return true
}

// server runs every dispatched Task of the space to the end that outcome
// names, until the test ends, in parallel.
func (s *space) server(outcome func(*v1alpha1.Task) lifecycle.TaskSignal) {
	s.Helper()
	work := make(chan *v1alpha1.Task, 10000)
	for range 16 {
		go func() {
			for t := range work {
				s.run(s.Context(), t, outcome(t))
			}
		}()
	}
	s.follow(func(t *v1alpha1.Task) {
		if t.Status.State == string(lifecycle.TaskDispatching) {
			work <- t
		}
	}, func() { close(work) })
}

// follow shows every Task of the space to see, each time that it changes,
// until the test ends. The API server ends a watch that is too slow, so it is started again.
func (s *space) follow(see func(*v1alpha1.Task), ended func()) {
	s.Helper()
	go func() {
		defer ended()
		for s.Context().Err() == nil {
			var list v1alpha1.TaskList
			if s.List(s.Context(), &list, client.InNamespace(s.name)) != nil {
				continue
			}
			// Ends first: what began since may have waited for them.
			slices.SortFunc(list.Items, func(a, b v1alpha1.Task) int { return endedFirst(&b) - endedFirst(&a) })
			for i := range list.Items {
				see(&list.Items[i])
			}
			from := &client.ListOptions{Namespace: s.name, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
			w, err := s.Watch(s.Context(), &list, from)
			if err != nil {
				continue
			}
			for e := range w.ResultChan() {
				if t, ok := e.Object.(*v1alpha1.Task); ok && e.Type != watch.Deleted {
					see(t)
				}
			}
		}
	}()
}

// endedFirst is 1 for a Task that has ended, else 0.
func endedFirst(t *v1alpha1.Task) int {
	if lifecycle.TaskState(t.Status.State).IsTerminal() {
		return 1
	}
	return 0
}

// run reports running, then the end.
func (s *space) run(ctx context.Context, t *v1alpha1.Task, end lifecycle.TaskSignal) {
	for _, g := range []lifecycle.TaskSignal{lifecycle.TaskStarted, end} {
		if !carry(t, g, "Exited") {
			return
		}
		if err := s.Status().Update(ctx, t); err != nil {
			if ctx.Err() == nil && !apierrors.IsConflict(err) {
				s.Errorf("report %s of %s: %v", g, t.Name, err)
			}
			return
		}
	}
}

func succeed(*v1alpha1.Task) lifecycle.TaskSignal { return lifecycle.TaskSucceeded }

// updateRobotSpec writes a robot's spec, as an operator does.
func (s *space) updateRobotSpec(name string, f func(*v1alpha1.RobotSpec)) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "write spec of robot "+name, func() error {
		var r v1alpha1.Robot
		if err := s.Get(s.Context(), s.key(name), &r); err != nil {
			return err
		}
		f(&r.Spec)
		return s.Update(s.Context(), &r)
	})
}

func capacity(name, amount string) map[string]resource.Quantity {
	return map[string]resource.Quantity{name: resource.MustParse(amount)}
}

// reportEnd writes a failed end with its reason, as the server does.
func (s *space) reportEnd(name, reason string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "report the end of task "+name, func() error {
		var t v1alpha1.Task
		if err := s.Get(s.Context(), s.key(name), &t); err != nil {
			return err
		}
		if !carry(&t, lifecycle.TaskAttemptFailed, reason) {
			return fmt.Errorf("state %q", t.Status.State)
		}
		return s.Status().Update(s.Context(), &t)
	})
}

// byHand creates a Task without a Job.
func (s *space) byHand(name, robot string) {
	s.Helper()
	s.must(s.Create(s.Context(), &v1alpha1.Task{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		Spec:       v1alpha1.TaskSpec{TaskDefinition: group("g", 1, "t").Tasks[0], TargetRobot: robot},
	}))
}

// watchLive counts how many Tasks of the space have not ended, and returns a
// function that returns the highest number at the same time.
func (s *space) watchLive() func() int {
	s.Helper()
	var mu sync.Mutex
	live, top := map[string]bool{}, 0
	s.follow(func(t *v1alpha1.Task) {
		mu.Lock()
		defer mu.Unlock()
		live[t.Name] = true
		if lifecycle.TaskState(t.Status.State).IsTerminal() {
			delete(live, t.Name)
		}
		top = max(top, len(live))
	}, func() {})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return top
	}
}
