package raycluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
)

// Gates are features that can be switched off. They have KubeRay's names.
type Gates struct {
	// StatusConditions maintains status.conditions. If false, suspension follows
	// the spec alone.
	StatusConditions bool
	// NetworkPolicy accepts spec.networkPolicy.
	NetworkPolicy bool
	// EmbeddedStorage accepts the backend rocksdb of spec.gcsFaultToleranceOptions.
	EmbeddedStorage bool
	// MultiHostIndexing labels workers with their replica and host index, and keeps the hosts of a
	// replica together.
	MultiHostIndexing bool
}

// The names of the gates of optional fields.
const (
	gateNetworkPolicy   = "RayClusterNetworkPolicy"
	gateEmbeddedStorage = "GCSFaultToleranceEmbeddedStorage"
)

// DefaultGates returns the gates of an operator that sets none. KubeRay's are off for NetworkPolicy
// and EmbeddedStorage.
func DefaultGates() Gates {
	return Gates{StatusConditions: true, MultiHostIndexing: true, NetworkPolicy: true, EmbeddedStorage: true}
}

// findGatedFields returns a finding for each field whose gate is off.
func findGatedFields(g Gates, c *rayv1.RayCluster) (all []build.Invalid) {
	add := func(field, gate string) {
		message := fmt.Sprintf("%s: the feature gate %s is off; omit the field, or ask an administrator to enable the gate", field, gate)
		all = append(all, build.Invalid{Reason: build.InvalidSpec, Message: message})
	}
	if c.Spec.NetworkPolicy != nil && !g.NetworkPolicy {
		add("spec.networkPolicy", gateNetworkPolicy)
	}
	if o := c.Spec.GcsFaultToleranceOptions; o != nil && o.Backend == rayv1.BackendRocksDB && !g.EmbeddedStorage {
		add("spec.gcsFaultToleranceOptions.backend", gateEmbeddedStorage)
	}
	return all
}

// gatesOfOtherKinds lists KubeRay's gates for kinds that K8s4r does not implement. Any value is accepted.
var gatesOfOtherKinds = []string{"RayJobDeletionPolicy", "RayServiceIncrementalUpgrade", "RayCronJob", "SidecarSubmitterRestart"}

// unsupportedGates lists KubeRay's gates for features that are not implemented. Only false is accepted.
var unsupportedGates = []string{"RayClusterMTLS", "RayClusterHistoryServer", "KubernetesWAS"}

// Set parses NAME=true,NAME=false and overrides the gates that it names.
func (g *Gates) Set(text string) error {
	ours := map[string]*bool{
		"RayClusterStatusConditions": &g.StatusConditions, "RayMultiHostIndexing": &g.MultiHostIndexing,
		gateNetworkPolicy: &g.NetworkPolicy, gateEmbeddedStorage: &g.EmbeddedStorage,
	}
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
