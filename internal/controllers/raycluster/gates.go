package raycluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Gates are features that can be switched off. They have KubeRay's names.
type Gates struct {
	// StatusConditions maintains status.conditions. If false, suspension follows
	// the spec alone.
	StatusConditions bool
	// MultiHostIndexing labels workers with their replica and host index, and keeps the hosts of a
	// replica together.
	MultiHostIndexing bool
}

// DefaultGates returns the gates of an operator that sets none.
func DefaultGates() Gates { return Gates{StatusConditions: true, MultiHostIndexing: true} }

// gatesOfOtherKinds lists KubeRay's gates for kinds that K8s4r does not implement. Any value is accepted.
var gatesOfOtherKinds = []string{"RayJobDeletionPolicy", "RayServiceIncrementalUpgrade", "RayCronJob", "SidecarSubmitterRestart"}

// unsupportedGates lists KubeRay's gates for features that are not implemented. Only false is accepted.
var unsupportedGates = []string{"RayClusterNetworkPolicy", "GCSFaultToleranceEmbeddedStorage", "RayClusterMTLS", "RayClusterHistoryServer", "KubernetesWAS"}

// Set parses NAME=true,NAME=false and overrides the gates that it names.
func (g *Gates) Set(text string) error {
	ours := map[string]*bool{"RayClusterStatusConditions": &g.StatusConditions, "RayMultiHostIndexing": &g.MultiHostIndexing}
	var errs []error
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		on, err := strconv.ParseBool(value)
		switch gate := ours[name]; {
		case err != nil:
			errs = append(errs, fmt.Errorf("feature-gates: %q: use %s=true or %s=false", part, name, name))
		case gate != nil:
			*gate = on
		case slices.Contains(unsupportedGates, name):
			if on {
				errs = append(errs, fmt.Errorf("feature-gates: %s is not supported yet; omit it, or use %s=false", name, name))
			}
		case !slices.Contains(gatesOfOtherKinds, name):
			known := slices.Sorted(maps.Keys(ours))
			errs = append(errs, fmt.Errorf("feature-gates: unknown gate %q; known gates are %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}
