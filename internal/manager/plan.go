package manager

import (
	"context"
	"net/http"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/rollout"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/manager/planapi"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/apiserve"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/scheduler"
)

func addAPIFlags(f *pflag.FlagSet, c *apiserve.Config) {
	f.StringVar(&c.Address, "api-bind-address", ":8444", "address of the HTTPS API that computes plans of changes; 0: no API")
	f.StringVar(&c.URL, "api-url", "", "URL at which clients reach the API, such as https://k8s4r.example.com:8444; empty: this machine's address and the port of --api-bind-address")
}

// addPlanAPI serves plans if this manager runs the controllers whose planners compute them. Only the leader
// serves, because only its scheduler knows all reservations.
func addPlanAPI(mgr ctrl.Manager, cfg Config, chosen selection, sched *scheduler.Scheduler) error {
	if cfg.API.Listener == nil && (cfg.API.Address == "" || cfg.API.Address == "0") {
		return nil
	}
	for _, name := range []string{job.Name, taskgroup.Name, task.Name, rollout.Name} {
		if !chosen.isSelected(name) {
			return nil
		}
	}
	log := mgr.GetLogger().WithName("plans")
	h := &planapi.Handler{
		Gate: access.New(mgr.GetClient(), mgr.GetAPIReader()), Placer: sched, Cache: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Config: taskgroup.Config{Window: cfg.TaskWindow}, Now: cfg.Now, Log: log,
	}
	mux := http.NewServeMux()
	h.Register(mux)
	api := cfg.API
	api.ServerName = serveraddr.HostName(serveraddr.ManagerName)
	announce := func(ctx context.Context, a serveraddr.Address) error {
		return serveraddr.PublishAddress(ctx, mgr.GetClient(), mgr.GetAPIReader(), serveraddr.ManagerName, a)
	}
	return mgr.Add(apiserve.New(api, mux, announce, log))
}
