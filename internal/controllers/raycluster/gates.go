package raycluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Gates are features that can be switched off. Their names are KubeRay's.
type Gates struct {
	// StatusConditions in the status of clusters. Without them a suspension follows
	// the spec alone.
	StatusConditions bool
	// MultiHostIndexing labels workers with their place, and keeps the hosts of a
	// replica together.
	MultiHostIndexing bool
}

// DefaultGates are those of an operator who has chosen nothing.
func DefaultGates() Gates { return Gates{StatusConditions: true, MultiHostIndexing: true} }

// elsewhere are gates of KubeRay about kinds that are not ours. Either value is right.
var elsewhere = []string{"RayJobDeletionPolicy", "RayServiceIncrementalUpgrade", "RayCronJob", "SidecarSubmitterRestart"}

// later are gates of features that are not there yet.
var later = []string{"RayClusterNetworkPolicy", "GCSFaultToleranceEmbeddedStorage", "RayClusterMTLS", "RayClusterHistoryServer", "KubernetesWAS"}

// Set reads NAME=true,NAME=false over the gates.
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
			errs = append(errs, fmt.Errorf("feature-gates: %q: write %s=true or %s=false", part, name, name))
		case gate != nil:
			*gate = on
		case slices.Contains(later, name):
			if on {
				errs = append(errs, fmt.Errorf("feature-gates: %s is not there yet; leave it out, or write %s=false", name, name))
			}
		case !slices.Contains(elsewhere, name):
			known := slices.Sorted(maps.Keys(ours))
			errs = append(errs, fmt.Errorf("feature-gates: there is no gate %q; there are %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}
