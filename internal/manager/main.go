package manager

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/controllers/retention"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/manager/admission"
	"k8s4r.io/k8s4r/internal/platform/program"
	"k8s4r.io/k8s4r/internal/platform/tracing"
)

// Main runs k8s4r-manager and returns its exit status, as program.Main does.
func Main(args []string, stdout, stderr io.Writer) int {
	var cfg Config
	return program.Program{
		Name:       "k8s4r-manager",
		Scheme:     NewScheme(),
		Cache:      func() cache.Options { return CacheOptions(cfg.Namespaces...) },
		Controller: ControllerOptions(),
		AddFlags:   cfg.addFlags,
		Trace:      func(t *tracing.Tracer) { cfg.Tracer = t },
		Complete:   cfg.completeFlags,
		Validate:   cfg.validate,
		LogHandler: func(to io.Writer) slog.Handler { return cfg.log.newHandler(to) },
		Add: func(mgr ctrl.Manager) error {
			cfg.ignored.logSettings(mgr.GetLogger())
			cfg.Webhook.RecordActions = cfg.Webhook.Address != ""
			return AddControllers(mgr, cfg)
		},
	}.Main(args, stdout, stderr)
}

// completeFlags changes the configuration after the command line is parsed.
func (c *Config) completeFlags(f *pflag.FlagSet) error {
	if err := c.completeFromFile(f); err != nil {
		return err
	}
	c.Controllers = c.ignored.translateControllers(c.Controllers)
	return nil
}

func (c *Config) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Controllers, "controllers", []string{"*"}, "controllers to run: * selects all, NAME one, -NAME excludes one")
	f.DurationVar(&c.OfflineAfter, "offline-after", 5*time.Minute, "how long a robot may send no heartbeat before it is Offline; less than three heartbeat intervals (90s) marks connected robots Offline")
	f.StringVar((*string)(&c.ApproveRobots), "approve-robots", string(robot.ApproveAuto), "how new robots are approved: auto, or manual, by the annotation "+robot.AnnotationApproved+`: "true"`)
	c.MaxRequeue = f.Int("max-requeue-num", -1, "how often in a row a failed reconciliation of a flow is retried before it waits for a change; -1: no limit")
	f.BoolFunc("enable-metrics", "false is the same as --metrics-bind-address=0", func(on string) error {
		enabled, err := strconv.ParseBool(on)
		if err != nil || enabled {
			return err
		}
		return f.Lookup("metrics-bind-address").Value.Set("0") // not f.Set: the command line has not set that flag
	})
	f.StringSliceVar(&c.Namespaces, "watch-namespace", nil, "namespaces whose objects are reconciled; empty: all")
	f.SetNormalizeFunc(otherNames)
	c.log.addFlags(f)
	c.addRayFlags(f, os.Getenv)
	c.addVolcanoFlags(f)
	addAPIFlags(f, &c.API)
	f.StringVar(&c.Webhook.Address, "webhook-bind-address", "", "address that serves the admission webhook for workflows over HTTPS, such as :9443; empty: none")
	f.StringVar(&c.Webhook.CertDir, "webhook-cert-dir", "", "directory with tls.crt and tls.key of the webhook, for example of cert-manager; empty: the manager issues, renews and registers its own certificate")
	f.StringVar(&c.Webhook.Service, "webhook-service", admission.DefaultService, "Service of the webhook, as namespace/name; the Secret with the certificate is in the same namespace")
	f.StringVar(&c.Archive, "archive", "", "archive of ended objects: sqlite:PATH, or postgres://USER@HOST/DATABASE with the password in PGPASSWORD; empty: none")
	f.DurationVar(&c.Retention.Age, "archive-max-age", 0, "how long the archive keeps ended objects, such as 2160h; 0: forever")
	f.Int64Var(&c.Retention.Bytes, "archive-max-bytes", 0, "size limit of the archive in bytes; the objects that ended first are removed; 0: no limit")
	f.DurationVar(&c.Finished.Age, "finished-retention", 0, "how long after their end jobs, flows and vcjobs without ttlSecondsAfterFinished are deleted, such as 24h; 0: they are kept; replaced in a namespace by its annotation "+retention.AnnotationAge)
	f.IntVar(&c.Finished.Count, "finished-max-objects", retention.DefaultCount, "how many of them a namespace keeps until then; of more, those that ended first are deleted; 0: no limit; replaced in a namespace by its annotation "+retention.AnnotationCount)
	f.IntVar(&c.Concurrency, "concurrency", 8, "how many objects of one kind are reconciled at a time")
}

// otherNames maps flags of Volcano's controllers and of KubeRay's operator to the flags of the same
// meaning (docs/how-to/move-from-volcano.md, docs/reference/kinds/raycluster.md).
func otherNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-") // klog's flags have both
	switch name {
	case "listen-address", "metrics-addr":
		name = "metrics-bind-address"
	case "enable-leader-election":
		name = "leader-elect"
	case "healthz-address":
		name = "health-probe-bind-address"
	case "reconcile-concurrency", "worker-threads":
		name = "concurrency"
	case "leader-election-namespace", "leader-elect-resource-namespace", "lock-object-namespace":
		name = "leader-elect-namespace"
	case "kube-api-qps":
		name = "qps"
	case "kube-api-burst":
		name = "burst"
	case "zap-encoder":
		name = "log-stdout-encoder"
	}
	return pflag.NormalizedName(name)
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.ApproveRobots == robot.ApproveAuto || c.ApproveRobots == robot.ApproveManual, "--approve-robots=%s: must be auto or manual", c.ApproveRobots)
	check(c.OfflineAfter > 0, "--offline-after=%s: must be positive", c.OfflineAfter)
	check(c.Concurrency > 0, "--concurrency=%d: must be 1 or more", c.Concurrency)
	for _, ns := range c.Namespaces {
		wrong := validation.IsDNS1123Label(ns)
		check(len(wrong) == 0, "--watch-namespace=%s: is not a valid namespace name: %s", ns, strings.Join(wrong, "; "))
	}
	check(c.Retention.Age >= 0, "--archive-max-age=%s: must be 0 (forever) or more", c.Retention.Age)
	check(c.Retention.Bytes >= 0, "--archive-max-bytes=%d: must be 0 (no limit) or more", c.Retention.Bytes)
	if c.Archive != "" {
		store, err := archive.Open(c.Archive)
		if err != nil {
			errs = append(errs, fmt.Errorf("--archive: %w", err))
		} else {
			errs = append(errs, store.Close())
		}
	}
	errs = append(errs, c.Finished.Validate(), c.Webhook.Validate(), c.log.validate(), c.rayError)
	return errors.Join(append(errs, selection(c.Controllers).validate())...)
}
