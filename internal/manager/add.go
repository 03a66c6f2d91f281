package manager

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/placement"
)

// reporter is the name under which the manager reports events.
const reporter = "k8s4r-manager"

// Scheme knows the kinds that the controllers read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Registering types fails only for two of one name, which the first test
	// would show.
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

// CacheOptions keep the informers small: nothing here reads managed fields.
func CacheOptions() cache.Options {
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields()}
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
	all := controllers(mgr, cfg, chosen)
	for _, name := range Names {
		if !chosen.runs(name) {
			continue
		}
		if err := all[name].Add(mgr); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return nil
}

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
	events := mgr.GetEventRecorder(reporter)
	return map[string]adder{
		job.Name: &job.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Recorder: events,
			Tick: cfg.StatusTick, Concurrency: cfg.Concurrency,
		},
		taskgroup.Name: &taskgroup.Controller{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Now: cfg.Now, Binder: binder, Recorder: events,
			Config: taskgroup.Config{Window: cfg.TaskWindow, Tick: cfg.StatusTick}, Concurrency: cfg.Concurrency,
		},
		task.Name: &task.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: events, Settle: cfg.OfflineAfter / settleShare,
			Scheduler: scheduler, Concurrency: 2 * cfg.Concurrency,
		},
		robot.Name: &robot.Controller{
			Client: mgr.GetClient(), Now: cfg.Now, Recorder: events,
			Config: robot.Config{OfflineAfter: cfg.OfflineAfter, Approve: cfg.ApproveRobots}, Concurrency: cfg.Concurrency,
		},
	}
}

// nobody finds no robots, so that Tasks are created without.
type nobody struct{}

// Bind finds none.
func (nobody) Bind(context.Context, string, string, []placement.Demand) (map[string]placement.Robot, error) {
	return nil, nil
}

// Release has nothing to give back.
func (nobody) Release(string, string) {}

// Forget has nothing to drop.
func (nobody) Forget(string, string) {}

// OnGroup never has anything to tell.
func (nobody) OnGroup(func(string, string)) {}
