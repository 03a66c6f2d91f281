package manager

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	archiver "k8s4r.io/k8s4r/internal/controllers/archive"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/jobtemplate"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/maintenancewindow"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/retention"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/robotidentity"
	"k8s4r.io/k8s4r/internal/controllers/rollout"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/manager/admission"
	"k8s4r.io/k8s4r/internal/manager/metrics"
	notes "k8s4r.io/k8s4r/internal/platform/events"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/sharing"
	"k8s4r.io/k8s4r/internal/platform/tracing"
	"k8s4r.io/k8s4r/internal/platform/uptime"
	"k8s4r.io/k8s4r/internal/scheduler"
)

// reporter is the source of the manager's events.
const reporter = "k8s4r-manager"

// NewScheme returns a scheme with the kinds that the controllers read and write.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Registration fails only for two types of the same kind, which any test would show.
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, flowv1.AddToScheme, batchv1.AddToScheme, busv1.AddToScheme, cronv1.AddToScheme, rayv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// CacheOptions returns the options of the manager's cache. They keep it small: managed fields are
// dropped, and only the Pods of pod jobs and the revisions of Jobs are cached. The raycluster controller
// has its own cache, because one selector cannot match both. If namespaces is empty, all namespaces are
// cached.
func CacheOptions(namespaces ...string) cache.Options {
	return cache.Options{
		DefaultTransform:  newTransform(),
		DefaultNamespaces: inNamespaces(namespaces),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                {Label: withLabel(batchv1.KeyJobName)},
			&appsv1.ControllerRevision{}: {Label: withLabel(v1alpha1.LabelPrefixedJob)},
		},
	}
}

// withLabel selects the objects that have a label.
func withLabel(key string) labels.Selector {
	chosen, err := labels.Parse(key)
	if err != nil {
		panic(err) // an invalid label, which any test would show
	}
	return chosen
}

// newTransform returns what each object goes through on its way into the cache.
func newTransform() toolscache.TransformFunc {
	strip, sharer := cache.TransformStripManagedFields(), &sharing.Sharer{}
	return func(o any) (any, error) {
		o, err := strip(o)
		if err != nil {
			return nil, err
		}
		return sharer.Transform(o)
	}
}

// inNamespaces limits a cache to the named namespaces. If names is empty, the cache has all.
func inNamespaces(names []string) map[string]cache.Config {
	chosen := map[string]cache.Config{}
	for _, name := range names {
		chosen[name] = cache.Config{}
	}
	return chosen
}

// ControllerOptions are the options of all controllers. They disable the priority queue, because
// that of controller-runtime 0.24 can hang a busy manager that stops: it hands an item to a worker
// that has exited and holds the lock that the other workers need to exit.
func ControllerOptions() config.Controller {
	return config.Controller{UsePriorityQueue: ptr.To(false)}
}

// adder is a controller that can be registered with a manager.
type adder interface{ Add(ctrl.Manager) error }

// AddControllers registers the controllers that cfg selects with mgr. The rate limit of API
// requests is that of mgr's client; the controllers set none.
func AddControllers(mgr ctrl.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	chosen := selection(cfg.Controllers)
	if err := chosen.validate(); err != nil {
		return err
	}
	program.AddAdvice(mgr, "roles", newRoleAdvice(mgr.GetClient(), cfg))
	record, err := newRecorders(mgr)
	if err != nil {
		return err
	}
	sched := scheduler.New(cfg.Now, mgr.GetLogger().WithName("scheduler"))
	all := selectControllers(mgr, cfg, chosen, record, sched)
	if recordsHistory(cfg, chosen) {
		store, err := openArchive(mgr, cfg)
		if err != nil {
			return err
		}
		cfg.Webhook.Archive = store
		all[archiver.Name] = &archiver.Controller{
			Client: mgr.GetClient(), Store: store, Now: cfg.Now, Recorder: record.own, Retention: cfg.Retention,
			Robots: chosen.isSelected(job.Name), Flows: chosen.isSelected(jobflow.Name), VCJobs: chosen.isSelected(vcjob.Name), RayClusters: chosen.isSelected(raycluster.Name), Concurrency: 8 * cfg.Concurrency,
			ReadActions: cfg.Webhook.RecordActions,
		}
	}
	if err := admission.Add(mgr, cfg.Webhook); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := addPlanAPI(mgr, cfg, chosen, sched); err != nil {
		return fmt.Errorf("plan API: %w", err)
	}
	for _, name := range Names {
		if !chosen.isSelected(name) || all[name] == nil {
			continue
		}
		if err := all[name].Add(holdUntilReported(mgr, name, cfg.Restore)); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	if !chosen.isSelected(task.Name) {
		return nil // another manager runs the task controller and counts tasks
	}
	c := &metrics.Collector{Informers: mgr.GetCache(), Flows: chosen.isSelected(jobflow.Name), Now: cfg.Now}
	if cfg.Tracer != nil {
		c.Lives = &tracing.TaskRecorder{Tracer: cfg.Tracer}
	}
	return mgr.Add(c)
}

// recordsHistory reports whether ended objects are recorded in the archive. Only then may their
// deletion wait for that.
func recordsHistory(cfg Config, chosen selection) bool {
	return cfg.Archive != "" && chosen.isSelected(archiver.Name)
}

// openArchive opens the archive until the manager stops. If the database is down, it is retried.
func openArchive(mgr ctrl.Manager, cfg Config) (*archive.Store, error) {
	store, err := archive.Open(cfg.Archive, archive.WithClock(cfg.Now))
	if err != nil {
		return nil, err
	}
	program.AddAdvice(mgr, archiver.Name, func(ctx context.Context) (string, error) { return "", store.Check(ctx) })
	return store, program.AddCloser(mgr, store)
}

// settleShare sets the time that robots get to reconnect after an outage of all of them:
// OfflineAfter divided by settleShare. By default that is one minute, enough for two heartbeats.
const settleShare = 5

// recorders record the events of the controllers.
type recorders struct {
	own events.EventRecorder
	ray events.EventRecorder // as KubeRay's operator
}

func newRecorders(mgr ctrl.Manager) (r recorders, err error) {
	if r.own, err = notes.NewRecorder(mgr, reporter); err != nil {
		return r, err
	}
	r.ray, err = notes.NewRecorder(mgr, raycluster.Reporter)
	return r, err
}

func selectControllers(mgr ctrl.Manager, cfg Config, chosen selection, record recorders, sched *scheduler.Scheduler) map[string]adder {
	heartbeats := kit.NewHeartbeats(mgr.GetAPIReader(), uptime.OfProcess)
	var binder taskgroup.Binder = sched
	if !chosen.isSelected(task.Name) {
		binder = noScheduler{} // a scheduler that is not running would never answer
	}
	return map[string]adder{
		job.Name: &job.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: record.own,
			Tick: cfg.StatusTick, Concurrency: cfg.Concurrency, Archives: recordsHistory(cfg, chosen),
		},
		taskgroup.Name: &taskgroup.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Binder: binder, Recorder: record.own,
			Config: taskgroup.Config{Window: cfg.TaskWindow, Tick: cfg.StatusTick}, Concurrency: cfg.Concurrency,
		},
		rollout.Name: &rollout.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: record.own,
			Tick: cfg.StatusTick, Concurrency: cfg.Concurrency, Heartbeats: heartbeats,
		},
		maintenancewindow.Name: &maintenancewindow.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: record.own, Concurrency: cfg.Concurrency,
		},
		task.Name: &task.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: record.own, RecoveryTime: cfg.OfflineAfter / settleShare,
			Scheduler: sched, FirstAttempt: cfg.Restore.FirstAttempt, Concurrency: 2 * cfg.Concurrency, Heartbeats: heartbeats,
		},
		robot.Name: &robot.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: record.own, Heartbeats: heartbeats,
			Config: robot.Config{OfflineAfter: cfg.OfflineAfter, Approve: cfg.ApproveRobots}, Concurrency: cfg.Concurrency,
		},
		jobflow.Name: &jobflow.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: record.own,
			// A flow mostly waits for the API server, so more workers cost little CPU time.
			Concurrency: 4 * cfg.Concurrency, MaxRequeue: *cfg.MaxRequeue, Archives: recordsHistory(cfg, chosen),
		},
		robotidentity.Name: &robotidentity.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: record.own,
			Config: robotidentity.Config{Manual: cfg.ApproveRobots == robot.ApproveManual}, Concurrency: cfg.Concurrency,
		},
		jobtemplate.Name: &jobtemplate.Controller{Client: mgr.GetClient(), Concurrency: cfg.Concurrency},
		cronjobflow.Name: &cronjobflow.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: record.own, Concurrency: cfg.Concurrency,
		},
		vcjob.Name: &vcjob.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: record.own,
			Tick: cfg.StatusTick, Concurrency: cfg.Concurrency, Archives: recordsHistory(cfg, chosen),
			GenerateKey: func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, vcjob.SSHKeyBits) },
		},
		raycluster.Name: &raycluster.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: record.ray,
			// A cluster mostly waits for the API server, so more workers cost little CPU time.
			Options: cfg.rayOptions(), Concurrency: 4 * cfg.Concurrency,
		},
		retention.Name: &retention.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: record.own, Limits: cfg.Finished, Namespaces: cfg.Namespaces, Archives: recordsHistory(cfg, chosen),
			Jobs: chosen.isSelected(job.Name), Flows: chosen.isSelected(jobflow.Name), VCJobs: chosen.isSelected(vcjob.Name), Concurrency: cfg.Concurrency,
		},
	}
}

// noScheduler reserves no robots, so that Tasks are created without one.
type noScheduler struct{}

// ReserveRobots returns no robots.
func (noScheduler) ReserveRobots(context.Context, *v1alpha1.TaskGroup, *v1alpha1.Job, []placement.Demand) (map[string]placement.Robot, error) {
	return nil, nil
}

// ReleaseRobot does nothing.
func (noScheduler) ReleaseRobot(string, string) {}

// ForgetGroup does nothing.
func (noScheduler) ForgetGroup(string, string) {}

// NotifyGroups never calls the function.
func (noScheduler) NotifyGroups(func(string, string)) {}
