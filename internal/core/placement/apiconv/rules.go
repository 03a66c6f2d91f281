package demand

import (
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/placement"
)

// Constraints in the words of placement, whichever spelling they have.
func Constraints(all []v1alpha1.Constraint) []placement.Constraint {
	var out []placement.Constraint
	for i := range all {
		c := &all[i]
		out = append(out, placement.Constraint{
			Left: either(c.LTarget, c.LTargetLower), Operand: c.Operand, Right: either(c.RTarget, c.RTargetLower),
		})
	}
	return out
}

func either(a, b *string) string {
	switch {
	case a != nil:
		return *a
	case b != nil:
		return *b
	}
	return ""
}

// defaultWeight is that of an affinity which does not say.
const defaultWeight = 50

// Wishes in the words of placement; object is the name of the TaskGroup that is
// the job's group of a name.
func Wishes(p *v1alpha1.Placement, object func(group string) string) *placement.Wishes {
	if p == nil {
		return nil
	}
	out := &placement.Wishes{Pack: p.Strategy == v1alpha1.StrategyPack}
	add := func(terms []v1alpha1.AffinityTerm, sign int) {
		for _, t := range terms {
			a := placement.Affinity{Labels: t.RobotLabels, Weight: sign * weight(t.Weight)}
			if t.TaskGroup != nil {
				a.Group = object(*t.TaskGroup)
			}
			if a.Group != "" || t.TaskGroup == nil { // of a group that is not there no robot holds tasks
				out.Affinity = append(out.Affinity, a)
			}
		}
	}
	add(p.Affinity, 1)
	add(p.AntiAffinity, -1)
	return out
}

func weight(w int32) int {
	if w == 0 {
		return defaultWeight
	}
	return int(w)
}

// Gang is the number of replicas that start together. 0: each by itself.
func Gang(g *v1alpha1.TaskGroup) int {
	if !g.Spec.Gang {
		return 0
	}
	return Count(g)
}

// Count is the number of replicas that the group asks for. That of a system
// job's group goes by the robots instead.
func Count(g *v1alpha1.TaskGroup) int {
	if g.Spec.Count == nil {
		return 1
	}
	return int(*g.Spec.Count)
}

// Rules are what a robot must meet for the tasks of a group of the job with these
// constraints. Which robots the group has blocked is not among them.
func Rules(j *v1alpha1.Job, constraints []v1alpha1.Constraint) *placement.Rules {
	d := j.Spec.Disconnect
	return &placement.Rules{
		Selector: j.Spec.RobotSelector, Datacenters: j.Spec.Datacenters, Constraints: Constraints(constraints),
		Fenced: d != nil && d.StopOnRobotAfter.Value() > 0,
	}
}
