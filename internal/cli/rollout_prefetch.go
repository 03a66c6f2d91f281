package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// The bounds of what robots fetch in advance, as of the kind Rollout.
const (
	minPrefetchRate   = 1 << 10
	maxPrefetchRate   = 1 << 40
	maxPrefetchRobots = 10_000
)

// prefetchOptions are the options of what robots fetch before they are changed.
type prefetchOptions struct {
	enabled bool
	rate    string
	robots  int32
}

func (o *prefetchOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.enabled, "prefetch", false, "let robots fetch artifacts with a checksum, and images, before they are changed")
	f.StringVar(&o.rate, "prefetch-rate", "", "bytes of artifacts that a robot fetches in a second, such as 1Mi; requires --prefetch; defaults to no limit")
	f.Int32Var(&o.robots, "prefetch-robots", robotv1.DefaultPrefetchRobots, "robots that fetch at the same time; requires --prefetch")
}

// setOn sets the options on a Rollout. Fields that the user did not set stay empty.
func (o *prefetchOptions) setOn(s *robotv1.RolloutSpec) error {
	err := errors.Join(
		errorUnless(o.robots >= 1 && o.robots <= maxPrefetchRobots, "--prefetch-robots=%d: must be from 1 to %d", o.robots, maxPrefetchRobots),
		errorUnless(o.enabled || o.robots == robotv1.DefaultPrefetchRobots, "--prefetch-robots=%d: requires --prefetch", o.robots),
		errorUnless(o.enabled || o.rate == "", "--prefetch-rate=%s: requires --prefetch", o.rate),
	)
	if err != nil || !o.enabled {
		return err
	}
	s.Prefetch = true
	limits := &robotv1.RolloutPrefetchLimits{}
	if o.robots != robotv1.DefaultPrefetchRobots {
		limits.MaxRobots = &o.robots
	}
	if o.rate != "" {
		q, err := resource.ParseQuantity(o.rate)
		bytes := q.Value()
		if err != nil || bytes < minPrefetchRate || bytes > maxPrefetchRate {
			return fmt.Errorf("--prefetch-rate=%s: must be from 1Ki to 1Ti bytes a second", shortenText(o.rate, 40))
		}
		limits.BytesPerSecond = &bytes
	}
	if limits.MaxRobots != nil || limits.BytesPerSecond != nil {
		s.PrefetchLimits = limits
	}
	return nil
}

// describePrefetch returns how many robots have fetched in advance.
func describePrefetch(robots int32) string {
	if robots == 1 {
		return "1 robot has prefetched the revision"
	}
	return fmt.Sprintf("%d robots have prefetched the revision", robots)
}
