package manager

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/program"
)

// Main runs k8s4r-manager and returns its exit status, as program.Main does.
func Main(args []string, stdout, stderr io.Writer) int {
	var cfg Config
	return program.Program{
		Name:     "k8s4r-manager",
		Scheme:   Scheme(),
		Cache:    CacheOptions(),
		AddFlags: cfg.addFlags,
		Validate: cfg.validate,
		Add:      func(mgr ctrl.Manager) error { return Add(mgr, cfg) },
	}.Main(args, stdout, stderr)
}

func (c *Config) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Controllers, "controllers", []string{"*"}, "controllers to run: * is all, name is one, -name is all but this one")
	f.DurationVar(&c.OfflineAfter, "offline-after", 5*time.Minute, "how long a robot may be silent before it is Offline. Less than three heartbeats, 90s, calls robots lost that are not")
	f.StringVar((*string)(&c.ApproveRobots), "approve-robots", string(robot.ApproveAuto), "who lets new robots in: auto, or manual, by the annotation "+robot.AnnotationApproved+`: "true"`)
	f.IntVar(&c.Concurrency, "concurrency", 8, "how many objects of one kind are worked on at a time")
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.ApproveRobots == robot.ApproveAuto || c.ApproveRobots == robot.ApproveManual, "--approve-robots=%s: must be auto or manual", c.ApproveRobots)
	check(c.OfflineAfter > 0, "--offline-after=%s: must be more than nothing", c.OfflineAfter)
	check(c.Concurrency > 0, "--concurrency=%d: must be 1 or more", c.Concurrency)
	return errors.Join(append(errs, selection(c.Controllers).validate())...)
}
