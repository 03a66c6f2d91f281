package manager

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"k8s4r.io/k8s4r/internal/controllers/raycluster"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// ReadEnvironment reads the environment variables of KubeRay's operator. The error names the
// variable with an invalid value.
func (c *Config) ReadEnvironment(getenv func(string) string) error {
	settings, err := build.SettingsFrom(getenv)
	c.Ray = &settings
	return err
}

// addRayFlags adds the flags that only KubeRay's operator has, under its names.
func (c *Config) addRayFlags(f *pflag.FlagSet, getenv func(string) string) {
	gates := raycluster.DefaultGates()
	c.rayError = c.ReadEnvironment(getenv)
	c.RayGates = &gates
	f.Func("feature-gates", "feature gates of RayClusters, as NAME=true,NAME=false: RayClusterStatusConditions, RayMultiHostIndexing, RayClusterNetworkPolicy, GCSFaultToleranceEmbeddedStorage; all are on by default", gates.Set)
	f.StringVar(&c.file, "config", "", "file of config.ray.io/v1alpha1, kind Configuration, with containers, environment, annotations and labels for all Pods of RayClusters, and flags; it takes precedence over these flags on the command line")
	f.Func("batch-scheduler", "not supported yet; must be empty, none or default", func(name string) error {
		if name != "" && name != "none" && name != "default" { // default: KubeRay's name for none
			return errBatchScheduler
		}
		return nil
	})
	f.BoolFunc("enable-batch-scheduler", "not supported yet; must be false", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err == nil && on {
			return errBatchScheduler
		}
		return err
	})
	c.ignored.addFlags(f, kubeRayIgnored)
}

var errBatchScheduler = errors.New("batch schedulers are not supported yet; omit the flag, and set schedulerName in the Pod templates")

func (c Config) rayOptions() raycluster.Options {
	return raycluster.Options{Build: *c.Ray, Gates: *c.RayGates, Tick: c.StatusTick, Namespaces: inNamespaces(c.Namespaces)}
}
