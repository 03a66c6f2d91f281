package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/plan"
)

// maxPlanLines is how many tasks, or steps, of a list the text names.
const maxPlanLines = 20

// planActions are the marks and words of actions.
var planActions = map[plan.Action][2]string{plan.Create: {"+", "would be created"}, plan.Update: {"~", "would be changed"}, plan.None: {"=", "no change"}}

// writePlan prints a plan as a tree.
func writePlan(w io.Writer, p *plan.Plan) {
	mark := planActions[p.Action]
	fmt.Fprintf(w, "%s %s %s in namespace %s: %s\n", mark[0], p.Kind, p.Name, p.Namespace, mark[1])
	for _, note := range p.Notes {
		fmt.Fprintf(w, "  %s\n", stripControl(note))
	}
	for i := range p.TaskGroups {
		writePlanGroup(w, &p.TaskGroups[i])
	}
	if p.HiddenRobots > 0 {
		fmt.Fprintf(w, "  %s in this plan that you may not read\n", countText(p.HiddenRobots, "robot"))
	}
}

func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func writePlanGroup(w io.Writer, g *plan.Group) {
	fmt.Fprintf(w, "  %s task group %s\n", planActions[g.Action][0], g.Name)
	isQuiet := g.Create == nil && g.CreateLater == 0 && g.ChangeInPlace == nil && g.Restart == nil && g.Stop == nil && g.OutOfReach == nil
	switch {
	case g.Defect != "":
		fmt.Fprintf(w, "      no task can exist: %s\n", stripControl(g.Defect))
	case isQuiet:
		fmt.Fprintln(w, "      no task changes")
	}
	writePlanList(w, "create", g.Create)
	if g.CreateLater > 0 {
		fmt.Fprintf(w, "      create %s later, when others have ended\n", countText(g.CreateLater, "more task"))
	}
	writeNoRoom(w, g.NoRoom)
	writePlanList(w, "change in place", g.ChangeInPlace)
	writeRestart(w, g.Restart)
	writePlanList(w, "stop", g.Stop)
	writePlanList(w, "change when the robot is back", g.OutOfReach)
}

func writePlanList(w io.Writer, verb string, l *plan.List) {
	if l == nil {
		return
	}
	fmt.Fprintf(w, "      %s %s\n", verb, countText(l.Total, "task"))
	named := l.Tasks[:min(len(l.Tasks), maxPlanLines)]
	for i := range named {
		fmt.Fprintf(w, "        %s\n", planTaskText(&named[i]))
	}
	writeMore(w, l.Total-len(named), len(l.Tasks) == 0)
}

// writeMore prints how many tasks a list does not name.
func writeMore(w io.Writer, n int, hidden bool) {
	switch {
	case n > 0 && hidden:
		fmt.Fprintln(w, "        which you may not list")
	case n > 0:
		fmt.Fprintf(w, "        and %d more\n", n)
	}
}

func planTaskText(t *plan.Task) string {
	text := t.Name
	if t.Indexes != "" {
		text += " [" + t.Indexes + "]"
	}
	switch {
	case t.Robot != "":
		text += " on " + t.Robot
	case t.RobotHidden:
		text += " on a robot that you may not read"
	}
	return stripControl(text)
}

func writeRestart(w io.Writer, r *plan.Restart) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "      restart %s, %s at a time, each healthy for %s before the next\n",
		countText(r.Total, "task"), countText(r.MaxParallel, "replica"), time.Duration(r.MinHealthySeconds)*time.Second)
	named := 0
	for i := range r.Steps {
		step := &r.Steps[i]
		if i == maxPlanLines || len(step.Tasks) == 0 {
			break
		}
		var names []string
		for n := range step.Tasks[:min(len(step.Tasks), maxPlanLines)] {
			names = append(names, planTaskText(&step.Tasks[n]))
		}
		named += len(step.Tasks)
		if more := len(step.Tasks) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(w, "        %d. %s\n", i+1, strings.Join(names, ", "))
	}
	writeMore(w, r.Total-named, named == 0)
}

func writeNoRoom(w io.Writer, all []plan.NoRoom) {
	for i := range all {
		x := &all[i]
		fmt.Fprintf(w, "      no room now for %s: %s\n", countText(x.Tasks, "task"), stripControl(x.Reason))
		switch {
		case len(x.Preempts) > 0:
			fmt.Fprintf(w, "        would preempt %s\n", stripControl(strings.Join(x.Preempts, ", ")))
		case x.PreemptsTotal > 0:
			fmt.Fprintf(w, "        would preempt %s\n", countText(x.PreemptsTotal, "task"))
		}
	}
}
