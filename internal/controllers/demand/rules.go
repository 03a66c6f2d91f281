package demand

import (
	"strconv"
	"strings"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/placement"
)

// attributes are what constraints see as ${robot.attr.NAME}. What the robot
// does not say of itself is not there.
func attributes(r *v1alpha1.Robot) map[string]string {
	out := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			out[name] = value
		}
	}
	set("name", r.Name)
	if a := r.Status.Agent; a != nil {
		set("agent.version", a.Version)
		set("agent.protocol", a.Protocol)
	}
	if d := r.Status.DeviceInfo; d != nil {
		set("hostname", d.Hostname)
		platform(d.Platform, set)
		hardware(d, set)
		set("drivers", strings.Join(d.Drivers, ","))
		for _, driver := range d.Drivers {
			set("driver."+driver, "true")
		}
	}
	return out
}

func platform(p *v1alpha1.Platform, set func(name, value string)) {
	if p == nil {
		return
	}
	set("os", p.OS)
	set("arch", p.Arch)
	set("kernel", p.KernelVersion)
	set("platform", p.Platform)
	set("platform.family", p.PlatformFamily)
	set("platform.version", p.PlatformVersion)
}

func hardware(d *v1alpha1.DeviceInfo, set func(name, value string)) {
	amount := func(name string, n int64) {
		if n > 0 {
			set(name, strconv.FormatInt(n, 10))
		}
	}
	if d.CPU != nil {
		amount("cpu.cores", int64(d.CPU.LogicalCores))
		set("cpu.model", d.CPU.ModelName)
		set("cpu.vendor", d.CPU.Vendor)
	}
	if d.Memory != nil {
		amount("memory.total", d.Memory.Total)
	}
	amount("disk.total", largestDisk(d))
}

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
