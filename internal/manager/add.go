package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
	"k8s4r.io/k8s4r/internal/admission"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/census"
	archiver "k8s4r.io/k8s4r/internal/controllers/archive"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/jobtemplate"
	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/robotidentity"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
	"k8s4r.io/k8s4r/internal/notes"
	"k8s4r.io/k8s4r/internal/placement"
	"k8s4r.io/k8s4r/internal/program"
	"k8s4r.io/k8s4r/internal/tracing"
)

// reporter is the name under which the manager reports events.
const reporter = "k8s4r-manager"

// Scheme knows the kinds that the controllers read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Registering types fails only for two of one name, which the first test
	// would show.
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, flowv1.AddToScheme, batchv1.AddToScheme, busv1.AddToScheme, cronv1.AddToScheme, rayv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// CacheOptions keep the informers small: nothing here reads managed fields, or Pods
// that are no vcjob's. A controller that reads others, raycluster, has a cache of its
// own: no selector says one or the other. Without namespaces they hold all.
func CacheOptions(namespaces ...string) cache.Options {
	ofJobs, err := labels.Parse(batchv1.KeyJobName)
	if err != nil {
		panic(err) // it is no label, which the first test would show
	}
	return cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		DefaultNamespaces: inNamespaces(namespaces),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: ofJobs},
		},
	}
}

// inNamespaces has a cache hold what is in these. None: what is in any.
func inNamespaces(names []string) map[string]cache.Config {
	chosen := map[string]cache.Config{}
	for _, name := range names {
		chosen[name] = cache.Config{}
	}
	return chosen
}

// ControllerOptions are those of all controllers. Their queues are plain ones: the
// priority queue of controller-runtime 0.24 can hang a manager that stops while it is
// busy, because it hands an item to a worker that has left, and holds the lock that
// the others need to leave.
func ControllerOptions() config.Controller {
	return config.Controller{UsePriorityQueue: ptr.To(false)}
}

// adder is a controller that can be started with a manager.
type adder interface{ Add(ctrl.Manager) error }

// Add starts the controllers that cfg selects with mgr. Whoever makes mgr
// chooses its client's rate limit; the controllers set none.
func Add(mgr ctrl.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	chosen := selection(cfg.Controllers)
	if err := chosen.validate(); err != nil {
		return err
	}
	if err := admission.Add(mgr, cfg.Webhook); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	all := controllers(mgr, cfg, chosen)
	if archives(cfg, chosen) {
		store, err := openArchive(mgr, cfg)
		if err != nil {
			return err
		}
		all[archiver.Name] = &archiver.Controller{
			Client: mgr.GetClient(), Store: store, Now: cfg.Now, Recorder: notes.Clipped(mgr.GetEventRecorder(reporter)), Retention: cfg.Retention,
			Flows: chosen.runs(jobflow.Name), VCJobs: chosen.runs(vcjob.Name), RayClusters: chosen.runs(raycluster.Name), Concurrency: cfg.Concurrency,
		}
	}
	for _, name := range Names {
		if !chosen.runs(name) || all[name] == nil {
			continue
		}
		if err := all[name].Add(mgr); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	if !chosen.runs(task.Name) {
		return nil // another manager has the tasks, and counts them
	}
	c := &census.Census{Informers: mgr.GetCache(), Flows: chosen.runs(jobflow.Name), Now: cfg.Now}
	if cfg.Tracer != nil {
		c.Lives = &tracing.Lives{Tracer: cfg.Tracer}
	}
	return mgr.Add(c)
}

// archives tells whether what has ended is recorded. Only then may its removal wait for that.
func archives(cfg Config, chosen selection) bool {
	return cfg.Archive != "" && chosen.runs(archiver.Name)
}

// openArchive opens the archive until the manager stops. One that is down now is waited for.
func openArchive(mgr ctrl.Manager, cfg Config) (*archive.Store, error) {
	store, err := archive.Open(cfg.Archive, archive.WithClock(cfg.Now))
	if err != nil {
		return nil, err
	}
	program.AddAdvice(mgr, archiver.Name, func(ctx context.Context) (string, error) { return "", store.Check(ctx) })
	return store, mgr.Add(closing{store})
}

// closing closes the archive when the manager stops, whether it leads or not.
type closing struct{ *archive.Store }

// Start waits for the manager's end.
func (c closing) Start(ctx context.Context) error {
	<-ctx.Done()
	return c.Close()
}

// NeedLeaderElection tells that it also starts where the manager only stands by.
func (closing) NeedLeaderElection() bool { return false }

// settleShare of the time after which a silent robot is offline is what robots
// need to come back after an outage of all: a minute of the usual five, in which
// each sends two heartbeats.
const settleShare = 5

func controllers(mgr ctrl.Manager, cfg Config, chosen selection) map[string]adder {
	scheduler := task.NewScheduler(cfg.Now, mgr.GetLogger().WithName("scheduler"))
	var binder taskgroup.Binder = scheduler
	if !chosen.runs(task.Name) {
		binder = nobody{} // a scheduler that does not run would never answer
	}
	events := notes.Clipped(mgr.GetEventRecorder(reporter))
	return map[string]adder{
		job.Name: &job.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: events,
			Tick: cfg.StatusTick, Concurrency: cfg.Concurrency, Archives: archives(cfg, chosen),
		},
		taskgroup.Name: &taskgroup.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Binder: binder, Recorder: events,
			Config: taskgroup.Config{Window: cfg.TaskWindow, Tick: cfg.StatusTick}, Concurrency: cfg.Concurrency,
		},
		task.Name: &task.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: events, Settle: cfg.OfflineAfter / settleShare,
			Scheduler: scheduler, Concurrency: 2 * cfg.Concurrency,
		},
		robot.Name: &robot.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: events,
			Config: robot.Config{OfflineAfter: cfg.OfflineAfter, Approve: cfg.ApproveRobots}, Concurrency: cfg.Concurrency,
		},
		jobflow.Name: &jobflow.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: events,
			// A flow spends its time waiting for the API server, not working.
			Concurrency: 4 * cfg.Concurrency, MaxRequeue: *cfg.MaxRequeue, Archives: archives(cfg, chosen),
		},
		robotidentity.Name: &robotidentity.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: events,
			Config: robotidentity.Config{Manual: cfg.ApproveRobots == robot.ApproveManual}, Concurrency: cfg.Concurrency,
		},
		jobtemplate.Name: &jobtemplate.Controller{Client: mgr.GetClient(), Concurrency: cfg.Concurrency},
		cronjobflow.Name: &cronjobflow.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: events, Concurrency: cfg.Concurrency,
		},
		vcjob.Name: &vcjob.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: events,
			Tick: cfg.StatusTick, Concurrency: cfg.Concurrency, Archives: archives(cfg, chosen),
		},
		raycluster.Name: &raycluster.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: mgr.GetEventRecorder(raycluster.Reporter),
			// A cluster spends its time waiting for the API server, not working.
			Options: cfg.rayOptions(), Concurrency: 4 * cfg.Concurrency,
		},
	}
}

// nobody finds no robots, so that Tasks are created without.
type nobody struct{}

// Bind finds none.
func (nobody) Bind(context.Context, *v1alpha1.TaskGroup, *v1alpha1.Job, []placement.Demand) (map[string]placement.Robot, error) {
	return nil, nil
}

// Release has nothing to give back.
func (nobody) Release(string, string) {}

// Forget has nothing to drop.
func (nobody) Forget(string, string) {}

// OnGroup never has anything to tell.
func (nobody) OnGroup(func(string, string)) {}
