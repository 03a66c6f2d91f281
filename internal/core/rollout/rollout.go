// Package rollout decides which revision of a Job a unit should have while a Rollout changes it, or which
// version of the agent. A unit is a robot if the target is the agent or a Job of type system or sysbatch, and a
// replica if it is a Job of type service.
package rollout

import (
	"hash/fnv"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/robotattr"
)

// Decision is the revision that a unit should have.
type Decision int

const (
	// Keep leaves a unit the revision that it has. A unit that has none gets the current revision of the
	// Job.
	Keep Decision = iota
	// Base is the current revision of the Job, or the version of the agent that a robot had before the
	// Rollout changed it.
	Base
	// Target is the revision or the version of the Rollout.
	Target
)

// Unit is what a Rollout changes.
type Unit struct {
	// Name of the robot, or that of ReplicaUnit.
	Name string
	// Labels of the robot, for waves with a selector. Nil for a replica.
	Labels map[string]string
}

// ReplicaUnit returns the name of the unit of a replica.
func ReplicaUnit(group string, index int) string { return group + "/" + strconv.Itoa(index) }

// MaxReplicas is how many replicas a Job may have in all its groups to be changed by a Rollout: the manager and
// the console hold a unit of each. Units that are robots need no bound, because each of them is an object.
const MaxReplicas = 100_000

// CountReplicas returns how many units of a Job are replicas. It returns 0 for Jobs whose units are robots.
func CountReplicas(j *v1alpha1.Job) int64 {
	if v1alpha1.RunsOnEveryRobot(j.Spec.Type) {
		return 0
	}
	var n int64
	for i := range j.Spec.TaskGroups {
		n += int64(GroupSize(&j.Spec.TaskGroups[i]))
	}
	return n
}

// GroupSize returns the number of replicas of a group, which is 1 if its count is not set.
func GroupSize(g *v1alpha1.TaskGroupDefinition) int {
	if g.Count == nil {
		return 1
	}
	return int(*g.Count)
}

// EndPosition is the end of all positions.
const EndPosition = 1 << 32

// Position returns the place of a unit in the order of a Rollout: from 0, below EndPosition. Each Rollout
// has an order of its own, so that it is not always the same robots that go first.
func Position(rollout types.UID, unit string) int64 {
	h := fnv.New64a()
	h.Write([]byte(rollout))
	h.Write([]byte{0})
	h.Write([]byte(unit))
	return int64(mixBits(h.Sum64()) >> 32)
}

// mixBits spreads a hash over all bits: names of robots often differ only in their last characters.
func mixBits(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// FindWave returns the index of the wave that a unit belongs to, and -1 if none of the waves that have
// started includes it.
func FindWave(r *v1alpha1.Rollout, u Unit) int {
	at := Position(r.UID, u.Name)
	for i := range min(len(r.Spec.Waves), len(r.Status.Waves)) {
		if includes(&r.Spec.Waves[i], &r.Status.Waves[i], at, u.Labels) {
			return i
		}
	}
	return -1
}

func includes(w *v1alpha1.RolloutWave, s *v1alpha1.RolloutWaveStatus, at int64, labels map[string]string) bool {
	return robotattr.HasLabels(labels, w.RobotSelector) && at < s.Bound
}

// Decide returns the revision that a unit should have. The task group's controller follows it, for agents the
// server, and the Rollout's controller counts by it.
func Decide(r *v1alpha1.Rollout, u Unit) Decision {
	switch r.Status.Phase {
	case v1alpha1.RolloutReverting, v1alpha1.RolloutReverted:
		return Base
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaitingForApproval, v1alpha1.RolloutPausing, v1alpha1.RolloutComplete:
	default: // it has not begun, or changes nothing now
		return Keep
	}
	i := FindWave(r, u)
	if i < 0 {
		return Keep
	}
	s := &r.Status.Waves[i]
	switch {
	case s.FinishedAt != nil && !follows(r):
		return Keep
	case Position(r.UID, u.Name) >= s.AdmittedBound:
		return Keep
	}
	return Target
}

func follows(r *v1alpha1.Rollout) bool { return r.Spec.Follow == nil || *r.Spec.Follow }

// TargetOf returns the TargetKey of what a Rollout changes, or may change, for an index. Empty once it is
// superseded: those are many, and decide nothing.
func TargetOf(r *v1alpha1.Rollout) []string {
	if r.Status.Phase == v1alpha1.RolloutSuperseded {
		return nil
	}
	return []string{TargetKey(r)}
}

// FindEffective returns the Rollout that decides for a Job: the newest one that has found its revision.
// It returns nil if there is none. One of a deleted Job of the same name decides nothing: its revisions had
// other numbers.
func FindEffective(all []v1alpha1.Rollout, j *v1alpha1.Job) *v1alpha1.Rollout {
	var newest *v1alpha1.Rollout
	for i := range all {
		r := &all[i]
		if r.Spec.Target.IsAgent() || r.Status.TargetUID != j.UID || isPassed(r, j) || r.Status.Revision == 0 || r.Status.Phase == v1alpha1.RolloutSuperseded {
			continue
		}
		if newest == nil || IsNewer(r, newest) {
			newest = r
		}
	}
	return newest
}

// isPassed reports whether a complete Rollout is of no effect, because the Job has another revision since then: its
// strategy was Immediate for a while.
func isPassed(r *v1alpha1.Rollout, j *v1alpha1.Job) bool {
	now := j.Status.CurrentRevision
	return r.Status.Phase == v1alpha1.RolloutComplete && now > r.Status.Revision && now != r.Status.FromRevision
}

// IsNewer reports whether a Rollout was created after another one, and so supersedes it.
func IsNewer(a, b *v1alpha1.Rollout) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.UID > b.UID // created in the same second
}

// BoundFor returns the least bound below which n of the positions are, or all of them. Units that come later mostly
// lie above it, and belong to a later wave.
func BoundFor(positions []int64, n int) int64 {
	if n <= 0 || len(positions) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(positions))
	return sorted[min(n, len(sorted))-1] + 1
}

// ShareOf returns how many units a percentage of all is, rounded up.
func ShareOf(units int, percent int32) int {
	return int((int64(units)*int64(percent) + 99) / 100)
}
