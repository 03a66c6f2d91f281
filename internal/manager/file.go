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

// fileFlags are the fields of KubeRay's file of settings that are flags, in the order in
// which they are set.
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

// complete reads the file of settings, if there is one, once the command line is read.
func (c *Config) complete(f *pflag.FlagSet) error {
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

// setFlags gives flags that the command line did not set the values that the file has. A
// field that is no flag is an error: a setting with a typing error would seem to hold.
func setFlags(f *pflag.FlagSet, file map[string]json.RawMessage) error {
	onLine := flagsOf(f)
	for _, known := range fileFlags {
		raw, said := file[known.field]
		delete(file, known.field)
		if !said || string(raw) == "null" || onLine[f.Lookup(known.flag).Name] {
			continue
		}
		value, err := scalar(raw)
		if err == nil {
			err = f.Set(known.flag, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", known.field, err)
		}
	}
	if len(file) > 0 {
		return fmt.Errorf("there is no field %s; docs/spec/raycluster.md has those that there are", strings.Join(slices.Sorted(maps.Keys(file)), ", "))
	}
	return nil
}

// flagsOf the command line, by name.
func flagsOf(f *pflag.FlagSet) map[string]bool {
	set := map[string]bool{}
	f.Visit(func(flag *pflag.Flag) { set[flag.Name] = true })
	if set["metrics-bind-address"] {
		set["enable-metrics"] = true // which is short for an address
	}
	return set
}

// scalar is a value as a command line has it.
func scalar(raw json.RawMessage) (string, error) {
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
	return "", fmt.Errorf("%s is no single value; write text, a number, true or false", raw)
}
