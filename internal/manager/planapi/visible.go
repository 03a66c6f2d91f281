package planapi

import (
	"context"
	"maps"
	"slices"

	"k8s4r.io/k8s4r/internal/protocol/plan"
)

// maxNamespaces bounds the namespaces about whose robots the API server is asked. Robots of others count as hidden.
const maxNamespaces = 64

// visible is what the user of a request may read.
type visible struct {
	tasks bool
	// robots are the names of those that the user may read.
	robots map[string]bool
	// allRobots is true if these are all robots that the namespace of the Job may use.
	allRobots bool
	hidden    map[string]bool // robots of the plan that the user may not read
}

// findVisible asks which robots and tasks the user may list. A robot may have objects in several namespaces, if
// it was registered twice; one of them is enough.
func (q *query) findVisible(ctx context.Context) (*visible, error) {
	v := &visible{robots: map[string]bool{}, allRobots: true, hidden: map[string]bool{}}
	var err error
	if v.tasks, err = q.isAllowed(ctx, q.key.Namespace, "list", "tasks", ""); err != nil {
		return nil, err
	}
	robots := q.Placer.PreviewRobots(q.key.Namespace)
	namespaces := map[string]bool{}
	for _, in := range robots {
		for _, namespace := range in {
			namespaces[namespace] = false
		}
	}
	for i, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		if i == maxNamespaces {
			break
		}
		if namespaces[namespace], err = q.isAllowed(ctx, namespace, "list", "robots", ""); err != nil {
			return nil, err
		}
	}
	for name, in := range robots {
		v.robots[name] = slices.ContainsFunc(in, func(namespace string) bool { return namespaces[namespace] })
		v.allRobots = v.allRobots && v.robots[name]
	}
	return v, nil
}

// hideFrom removes from a plan what the user may not read.
func (v *visible) hideFrom(p *plan.Plan) {
	for i := range p.TaskGroups {
		g := &p.TaskGroups[i]
		v.hideRobots(g.Create)
		for _, l := range []*plan.List{g.ChangeInPlace, g.Stop, g.OutOfReach} {
			v.hideTasks(l)
		}
		if g.Restart != nil {
			for n := range g.Restart.Steps {
				v.hideTasks(&g.Restart.Steps[n])
			}
		}
		for n := range g.NoRoom {
			if !v.tasks {
				g.NoRoom[n].Preempts = nil
			}
		}
	}
	p.HiddenRobots = len(v.hidden)
}

// hideTasks removes existing tasks from a list, or their robots. The list may be nil.
func (v *visible) hideTasks(l *plan.List) {
	v.hideRobots(l)
	if l != nil && !v.tasks {
		l.Tasks = nil
	}
}

func (v *visible) hideRobots(l *plan.List) {
	if l == nil {
		return
	}
	for i := range l.Tasks {
		if t := &l.Tasks[i]; t.Robot != "" && !v.robots[t.Robot] {
			v.hidden[t.Robot] = true
			t.Robot, t.RobotHidden = "", true
		}
	}
}
