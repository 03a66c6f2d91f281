package apiconv

import (
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/placement"
)

// ConstraintsFrom converts constraints. It accepts both spellings of the fields.
func ConstraintsFrom(all []v1alpha1.Constraint) []placement.Constraint {
	var out []placement.Constraint
	for i := range all {
		c := &all[i]
		out = append(out, placement.Constraint{
			Left: firstSet(c.LTarget, c.LTargetLower), Operand: c.Operand, Right: firstSet(c.RTarget, c.RTargetLower),
		})
	}
	return out
}

func firstSet(a, b *string) string {
	switch {
	case a != nil:
		return *a
	case b != nil:
		return *b
	}
	return ""
}

// defaultWeight is the weight of an affinity without one.
const defaultWeight = 50

// PreferencesFrom converts the placement of a group; object returns the name of the TaskGroup for
// the name of a group of the job.
func PreferencesFrom(p *v1alpha1.Placement, object func(group string) string) *placement.Preferences {
	if p == nil {
		return nil
	}
	out := &placement.Preferences{Pack: p.Strategy == v1alpha1.StrategyPack}
	add := func(terms []v1alpha1.AffinityTerm, sign int) {
		for _, t := range terms {
			a := placement.Affinity{Labels: t.RobotLabels, Weight: sign * weightOrDefault(t.Weight)}
			if t.TaskGroup != nil {
				a.Group = object(*t.TaskGroup)
			}
			if a.Group != "" || t.TaskGroup == nil { // a missing group has no tasks on any robot
				out.Affinity = append(out.Affinity, a)
			}
		}
	}
	add(p.Affinity, 1)
	add(p.AntiAffinity, -1)
	return out
}

func weightOrDefault(w int32) int {
	if w == 0 {
		return defaultWeight
	}
	return int(w)
}

// GangSize returns the number of replicas that start together. It is zero if each starts on its
// own.
func GangSize(g *v1alpha1.TaskGroup) int {
	if !g.Spec.Gang {
		return 0
	}
	return ReplicaCount(g)
}

// ReplicaCount returns the number of replicas that the group requests: those of an array are its ranges.
// Groups of system jobs have one replica for each robot instead.
func ReplicaCount(g *v1alpha1.TaskGroup) int {
	if g.Spec.Array != nil {
		return array.Divide(g.Spec.Array).Count()
	}
	if g.Spec.Count == nil {
		return 1
	}
	return int(*g.Spec.Count)
}

// RulesFrom returns the rules for the tasks of a group with these constraints, without the robots
// that are blocked for the group.
func RulesFrom(j *v1alpha1.Job, constraints []v1alpha1.Constraint) *placement.Rules {
	d := j.Spec.Disconnect
	return &placement.Rules{
		Selector: j.Spec.RobotSelector, Datacenters: j.Spec.Datacenters, Constraints: ConstraintsFrom(constraints),
		SelfStop: d != nil && d.StopOnRobotAfter.Value() > 0,
	}
}
