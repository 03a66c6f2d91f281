package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// fileFlag is a field of KubeRay's settings file and the flag of the same meaning.
type fileFlag struct{ field, flag string }

// fileFlags are those that a settings file replaces, in the order in which they are set.
var fileFlags = []fileFlag{
	{"watchNamespace", "watch-namespace"},
	{"reconcileConcurrency", "reconcile-concurrency"},
	{"metricsAddr", "metrics-addr"},
	{"probeAddr", "health-probe-bind-address"},
	{"healthProbeBindAddress", "health-probe-bind-address"},
	{"enableLeaderElection", "enable-leader-election"},
	{"leaderElectionNamespace", "leader-election-namespace"},
	{"qps", "qps"},
	{"burst", "burst"},
	{"logStdoutEncoder", "log-stdout-encoder"},
	{"enableBatchScheduler", "enable-batch-scheduler"},
	{"batchScheduler", "batch-scheduler"},
	{"enableMetrics", "enable-metrics"}, // after metricsAddr, which false overrides
}

// gatesField is a field that KubeRay does not have: there, the flag stays in effect beside a file.
var gatesField = fileFlag{"featureGates", "feature-gates"}

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
		c.ignored.takeFields(rest)
		err = errors.Join(c.resetFlags(f), setFlags(f, rest))
	}
	if err != nil {
		return fmt.Errorf("--config=%s: %w", c.file, err)
	}
	return nil
}

// resetFlags gives the flags of fileFlags their defaults. As in KubeRay, a settings file replaces
// them all, also those that it does not set.
func (c *Config) resetFlags(f *pflag.FlagSet) error {
	for _, known := range fileFlags {
		flag := f.Lookup(known.flag)
		if flag.Changed {
			c.ignored.addSetting("--"+flag.Name, fileTakesFlags)
		}
		if err := resetFlag(flag); err != nil {
			return fmt.Errorf("--%s: %w", flag.Name, err)
		}
	}
	return nil
}

func resetFlag(flag *pflag.Flag) error {
	if list, isList := flag.Value.(pflag.SliceValue); isList {
		return list.Replace(nil) // Set would append
	}
	if strings.HasSuffix(flag.Value.Type(), "func") {
		return nil // it holds no value: it sets another flag, or refuses
	}
	return flag.Value.Set(flag.DefValue)
}

// setFlags sets the flags to the values in the file. An unknown field is an error; a misspelled
// setting would otherwise be ignored silently.
func setFlags(f *pflag.FlagSet, file map[string]json.RawMessage) error {
	for _, known := range append(slices.Clone(fileFlags), gatesField) {
		raw, isSet := file[known.field]
		delete(file, known.field)
		if !isSet || string(raw) == "null" {
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
