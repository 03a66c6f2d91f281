package manager

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// fileFlags maps fields of KubeRay's settings file to flags, in the order in which they are set.
var fileFlags = []struct{ field, flag string }{
	{"watchNamespace", "watch-namespace"},
	{"reconcileConcurrency", "reconcile-concurrency"},
	{"metricsAddr", "metrics-addr"},
	{"probeAddr", "health-probe-bind-address"},
	{"healthProbeBindAddress", "health-probe-bind-address"},
	{"enableLeaderElection", "enable-leader-election"},
	{"leaderElectionNamespace", "leader-election-namespace"},
	{"qps", "qps"},
	{"burst", "burst"},
	{"featureGates", "feature-gates"},
	{"batchScheduler", "batch-scheduler"},
	{"enableMetrics", "enable-metrics"}, // after metricsAddr, which false overrides
}

// completeFromFile reads the settings file, if there is one, after the command line is parsed.
func (c *Config) completeFromFile(f *pflag.FlagSet) error {
	if c.file == "" {
		return nil
	}
	text, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	rest, err := c.Ray.Configure(text)
	if err == nil {
		err = setFlags(f, rest)
	}
	if err != nil {
		return fmt.Errorf("--config=%s: %w", c.file, err)
	}
	return nil
}

// setFlags sets the flags that are not on the command line to the values in the file. An unknown
// field is an error; a misspelled setting would otherwise be ignored silently.
func setFlags(f *pflag.FlagSet, file map[string]json.RawMessage) error {
	onCommandLine := flagsOf(f)
	for _, known := range fileFlags {
		raw, isSet := file[known.field]
		delete(file, known.field)
		if !isSet || string(raw) == "null" || onCommandLine[f.Lookup(known.flag).Name] {
			continue
		}
		value, err := formatScalar(raw)
		if err == nil {
			err = f.Set(known.flag, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", known.field, err)
		}
	}
	if len(file) > 0 {
		return fmt.Errorf("unknown field %s; docs/reference/kinds/raycluster.md lists the fields", strings.Join(slices.Sorted(maps.Keys(file)), ", "))
	}
	return nil
}

// flagsOf returns the names of the flags that the command line sets.
func flagsOf(f *pflag.FlagSet) map[string]bool {
	set := map[string]bool{}
	f.Visit(func(flag *pflag.Flag) { set[flag.Name] = true })
	if set["metrics-bind-address"] {
		set["enable-metrics"] = true // an alias that sets the address
	}
	return set
}

// formatScalar returns a JSON value in the syntax of a flag.
func formatScalar(raw json.RawMessage) (string, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, float64:
		return string(raw), nil
	}
	return "", fmt.Errorf("%s is not a scalar; use a string, a number, true or false", raw)
}
