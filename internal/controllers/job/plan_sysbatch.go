package job

import (
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

func (p *plan) isSysbatch() bool { return p.Job.Spec.Type == v1alpha1.JobTypeSysbatch }

// awaitsRobots reports whether a sysbatch job stays open although its tasks have ended: until its
// activeDeadline, or because one of its groups has not run on any robot.
func (p *plan) awaitsRobots() bool {
	return p.isSysbatch() && (p.Job.Spec.ActiveDeadline != nil || p.hasGroupWithoutTasks())
}

func (p *plan) hasGroupWithoutTasks() bool {
	for i := range p.Job.Spec.TaskGroups {
		g := p.Groups[p.Job.Spec.TaskGroups[i].Name]
		if g == nil || g.Status.TotalTasks == 0 {
			return true
		}
	}
	return false
}

// isDoneAtDeadline reports whether the activeDeadline of a sysbatch job ends it without failing it,
// because all of its tasks have ended.
func (p *plan) isDoneAtDeadline(counts lifecycle.Counts) bool {
	return p.isSysbatch() && counts.TerminalCount() == counts.Total
}
