package manager

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/jobtemplate"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
)

// Why settings of Volcano's controllers have no effect here.
const (
	noPodGroups = "PodGroups are not supported"
	noQueues    = "the manager does not reconcile Queues"
	noSuchKind  = "the manager does not have this controller"
	oneWorkers  = "--worker-threads is the number for each kind"
	plainHealth = "health checks are served over HTTP"
	fixedLease  = "the manager uses a Lease, with the durations that are the default of Volcano"
	fixedFormat = "the manager has a format of its own"
	oneLevel    = "-v is the level of all files"
)

// volcanoIgnored are the settings of Volcano's controllers, and those of klog, which they have.
var volcanoIgnored = []ignoredName{
	{flag: "scheduler-name", reason: "it selects Pods that get a PodGroup, and " + noPodGroups},
	{flag: "inherit-owner-annotations", reason: noPodGroups, isSwitch: true},
	{flag: "worker-threads-for-podgroup", reason: noPodGroups},
	{flag: "worker-threads-for-queue", reason: noQueues},
	{flag: "worker-threads-for-gc", reason: oneWorkers},
	{flag: "ca-cert-file", reason: plainHealth},
	{flag: "tls-cert-file", reason: plainHealth},
	{flag: "tls-private-key-file", reason: plainHealth},
	{flag: "leader-elect-lease-duration", reason: fixedLease},
	{flag: "leader-elect-renew-deadline", reason: fixedLease},
	{flag: "leader-elect-retry-period", reason: fixedLease},
	{flag: "leader-elect-resource-lock", reason: fixedLease},
	{flag: "logtostderr", reason: oneLog, isSwitch: true},
	{flag: "alsologtostderr", reason: oneLog, isSwitch: true},
	{flag: "log-dir", reason: oneLog},
	{flag: "log-file", reason: oneLog},
	{flag: "log-file-max-size", reason: oneLog},
	{flag: "log-flush-frequency", reason: oneLog},
	{flag: "one-output", reason: oneLog, isSwitch: true},
	{flag: "stderrthreshold", reason: oneLog},
	{flag: "add-dir-header", reason: fixedFormat, isSwitch: true},
	{flag: "skip-headers", reason: fixedFormat, isSwitch: true},
	{flag: "skip-log-headers", reason: fixedFormat, isSwitch: true},
	{flag: "log-backtrace-at", reason: otherLogger},
	{flag: "vmodule", reason: oneLevel},
}

// addVolcanoFlags adds the flags of Volcano's controllers that are not those of otherNames.
func (c *Config) addVolcanoFlags(f *pflag.FlagSet) {
	f.FuncP("v", "v", "the same as --zap-log-level, as a number; 0: info", c.log.setVerbosity)
	f.BoolFunc("enable-healthz", "false is the same as --health-probe-bind-address=0", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil || on {
			return err
		}
		return f.Lookup("health-probe-bind-address").Value.Set("0")
	})
	c.ignored.addFlags(f, volcanoIgnored)
}

// setVerbosity sets the level to a number of klog.
func (l *logConfig) setVerbosity(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0 || n > maxVerbosity:
		return fmt.Errorf("must be a number from 0 to %d", maxVerbosity)
	case n == 0:
		l.level = "info"
	default:
		l.level = text
	}
	return nil
}

// volcanoControllers maps the names of Volcano's controllers to ours. Empty if we have none.
var volcanoControllers = map[string]string{
	"job-controller":         vcjob.Name,
	"jobflow-controller":     jobflow.Name,
	"jobtemplate-controller": jobtemplate.Name,
	"gc-controller":          "",
	"pg-controller":          "",
	"queue-controller":       "",
	"cronjob-controller":     "",
	"hyperNode-controller":   "",
	"sharding-controller":    "",
	"repack-controller":      "",
}

// translateControllers returns the selection with our names. Controllers that we do not have are
// left out, unless no other is selected.
func (s *ignoredSettings) translateControllers(selected []string) (all []string) {
	var lost []string
	for _, item := range selected {
		plain := strings.TrimLeft(item, "+-")
		name, foreign := volcanoControllers[plain]
		switch {
		case !foreign:
			all = append(all, item)
		case name == "":
			lost = append(lost, item)
			s.addSetting("--controllers="+item, noSuchKind)
		case strings.HasPrefix(item, "-"):
			all = append(all, "-"+name)
		default:
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return slices.Clip(lost) // of which validate reports each
	}
	return all
}
