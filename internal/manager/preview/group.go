package preview

import (
	"fmt"
	"slices"
	"strings"

	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/scheduler"
)

const defaultPriority = apiconv.DefaultPriority

// describe returns what follows for a group as data of the API.
func (g *groupPreview) describe(placed scheduler.Preview, hideValues bool) plan.Group {
	return plan.Group{
		Name: g.group.Spec.GroupName, Action: g.action,
		Create: g.listCreated(placed), CreateLater: g.CreateLater,
		ChangeInPlace: listMembers(g.ChangeInPlace), Restart: g.describeRestart(),
		Stop: listMembers(g.Stop), OutOfReach: listMembers(g.OutOfReach),
		NoRoom: g.listNoRoom(placed, hideValues), Defect: g.Defect.Message,
	}
}

// listCreated returns the new tasks with the robots that they would get now.
func (g *groupPreview) listCreated(placed scheduler.Preview) *plan.List {
	if len(g.Create) == 0 {
		return nil
	}
	robots := map[string]string{}
	for i := range g.Demands {
		for _, t := range g.Demands[i].Tasks {
			robots[t.Name] = placed.Robots[g.Demands[i].Name()]
		}
	}
	out := &plan.List{Total: len(g.Create)}
	for _, t := range g.Create[:min(len(g.Create), plan.MaxListed)] {
		x := plan.Task{Name: t.Name, Robot: t.Spec.TargetRobot}
		if x.Robot == "" {
			x.Robot = robots[t.Name]
		}
		if a := t.Spec.Array; a != nil {
			x.Indexes = a.Indexes
		}
		out.Tasks = append(out.Tasks, x)
	}
	return out
}

// listNoRoom returns why replicas have no robot, those with the same reason together.
func (g *groupPreview) listNoRoom(placed scheduler.Preview, hideValues bool) (out []plan.NoRoom) {
	for i := range g.Demands {
		d := &g.Demands[i]
		why := placed.Rejected[d.Name()]
		if why == nil {
			continue
		}
		reason, victims := describeDiagnosis(why, hideValues), placed.Preempted[d.Name()]
		n := slices.IndexFunc(out, func(x plan.NoRoom) bool { return x.Reason == reason })
		if n < 0 {
			n = len(out)
			out = append(out, plan.NoRoom{Reason: reason})
		}
		out[n].Tasks += len(d.Tasks)
		out[n].PreemptsTotal += len(victims)
		out[n].Preempts = append(out[n].Preempts, victims[:min(len(victims), plan.MaxListed-len(out[n].Preempts))]...)
	}
	return out
}

func (g *groupPreview) describeRestart() *plan.Restart {
	if len(g.Restarts) == 0 {
		return nil
	}
	out := &plan.Restart{Total: g.RestartLater, MaxParallel: g.MaxParallel, MinHealthySeconds: int64(g.MinHealthyTime.Seconds())}
	listed := 0
	for _, step := range g.Restarts {
		out.Total += len(step)
		if listed += len(step); listed <= plan.MaxListed {
			out.Steps = append(out.Steps, *listMembers(step))
		}
	}
	return out
}

// listMembers returns nil for no tasks.
func listMembers(members []taskgroup.Member) *plan.List {
	if len(members) == 0 {
		return nil
	}
	out := &plan.List{Total: len(members)}
	for _, m := range members[:min(len(members), plan.MaxListed)] {
		out.Tasks = append(out.Tasks, plan.Task{Name: m.Name, Robot: m.Robot})
	}
	return out
}

// describeDiagnosis returns why no robot takes a replica. With hideValues it has the names of the checks, without
// what robots have: labels, drivers and policies are properties of robots.
func describeDiagnosis(d *placement.Diagnosis, hideValues bool) string {
	if !hideValues {
		return d.String()
	}
	top, omitted := d.Top()
	var parts []string
	for _, r := range top {
		parts = append(parts, fmt.Sprintf("%d: %s", r.Robots, r.Check))
	}
	if omitted > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", omitted))
	}
	text := fmt.Sprintf("0 of %d robots", d.Robots)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, "; ")
	}
	if d.Gang != nil {
		text = d.Gang.String() + ": " + text
	}
	return text
}
