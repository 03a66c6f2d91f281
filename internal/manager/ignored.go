package manager

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// ignoredSetting is a setting that was given and has no effect.
type ignoredSetting struct{ name, reason string }

// ignoredSettings are logged when the manager starts, each once.
type ignoredSettings []ignoredSetting

func (s *ignoredSettings) addSetting(name, reason string) {
	if given := (ignoredSetting{name, reason}); !slices.Contains(*s, given) {
		*s = append(*s, given)
	}
}

func (s *ignoredSettings) logSettings(to logr.Logger) {
	for _, given := range *s {
		to.Info("a setting has no effect", "setting", given.name, "reason", given.reason)
	}
}

// ignoredName is a setting of another operator that is accepted and has no effect: the name of the
// flag, and that of the field of the settings file. Either may be empty.
type ignoredName struct {
	flag, field, reason string
	isSwitch            bool
}

// Why settings of KubeRay's operator have no effect here.
const (
	oneLog         = "the manager logs to standard error only"
	otherKinds     = "the manager does not reconcile RayJobs and RayServices"
	otherLogger    = "the manager logs without stack traces, with times of RFC 3339"
	noUpgradeFlag  = "KubeRay ignores it too; spec.upgradeStrategy of a RayCluster replaces it"
	notYetHere     = "it is not supported yet"
	fileTakesFlags = "the file of --config replaces this flag, as in KubeRay"
)

// kubeRayIgnored are the settings of KubeRay's operator.
var kubeRayIgnored = []ignoredName{
	{flag: "log-file-path", field: "logFile", reason: oneLog},
	{flag: "log-file-encoder", field: "logFileEncoder", reason: oneLog},
	{flag: "use-kubernetes-proxy", field: "useKubernetesProxy", reason: otherKinds, isSwitch: true},
	{flag: "forced-cluster-upgrade", field: "forcedClusterUpgrade", reason: noUpgradeFlag, isSwitch: true},
	{flag: "zap-devel", reason: otherLogger, isSwitch: true},
	{flag: "zap-stacktrace-level", reason: otherLogger},
	{flag: "zap-time-encoding", reason: otherLogger},
	{field: "deleteRayJobAfterJobFinishes", reason: otherKinds},
	{field: "nodeEventForwarder", reason: notYetHere},
	{field: "allowedNodeLabels", reason: notYetHere},
}

// addFlags adds the flags of a table, which the help does not list.
func (s *ignoredSettings) addFlags(f *pflag.FlagSet, table []ignoredName) {
	for _, known := range table {
		if known.flag == "" {
			continue
		}
		note := func(text string) error {
			s.addSetting("--"+known.flag, known.reason)
			if known.isSwitch {
				_, err := strconv.ParseBool(text)
				return err
			}
			return nil
		}
		if known.isSwitch {
			f.BoolFunc(known.flag, known.reason, note)
		} else {
			f.Func(known.flag, known.reason, note)
		}
		f.Lookup(known.flag).Hidden = true
	}
}

// takeFields removes the fields of kubeRayIgnored from a settings file.
func (s *ignoredSettings) takeFields(file map[string]json.RawMessage) {
	for _, known := range kubeRayIgnored {
		if _, given := file[known.field]; given && known.field != "" {
			s.addSetting(known.field, known.reason)
			delete(file, known.field)
		}
	}
}
