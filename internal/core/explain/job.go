package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wish"
)

// NoState is the word for a Job that no manager has looked at.
const NoState = "without a state yet"

// How much of a job's tasks is told.
const (
	maxReasons = 8
	maxNames   = 5
)

// Parts are what a job consists of, in any order.
type Parts struct {
	Groups []*robotv1.TaskGroup
	Tasks  []*robotv1.Task
}

// Job says what the tasks of a job wait for. Parts that are nil may not be seen.
func Job(j *robotv1.Job, p *Parts, now time.Time) *Explanation {
	a := &Explanation{State: cmp.Or(j.Status.State, NoState), Facts: []Fact{}}
	if lifecycle.JobState(j.Status.State).Terminal() && wish.Heading(j) == lifecycle.JobState(j.Status.State) {
		a.add("message", j.Status.StatusDescription)
		return a
	}
	waiting := 0
	if p == nil {
		a.add("tasks", "you may not see them")
	} else {
		waiting = a.wait(j, p, now)
	}
	a.Gist = jobGist(j, waiting)
	a.Waits = a.Gist != ""
	if next := wish.Heading(j); string(next) != j.Status.State {
		a.add("soon", string(next))
	}
	a.add("message", j.Status.StatusDescription)
	return a
}

// jobGist is the first thing to know of a job. Empty: nothing of it waits.
func jobGist(j *robotv1.Job, waiting int) string {
	if j.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	if j.Status.State == "" {
		return "the manager has not looked at it"
	}
	if text := outlook(wish.Heading(j)); text != "" {
		return text
	}
	switch waiting {
	case 0:
		return ""
	case 1:
		return "one of its tasks waits"
	}
	return fmt.Sprintf("%d of its tasks wait", waiting)
}

// jobOutlook is the job's state, the one that it is about to get, and what that
// means for its tasks.
func jobOutlook(j *robotv1.Job) string {
	text, next := cmp.Or(j.Status.State, NoState), wish.Heading(j)
	if j.Status.State != "" && string(next) != j.Status.State {
		text += ", soon " + string(next)
	}
	if means := outlook(next); means != "" {
		text += ": " + means
	}
	return text
}

// outlook is what a state of a job means for its tasks. Empty: they run.
func outlook(s lifecycle.JobState) string {
	switch {
	case s.Holds():
		return "what waits is held back until it is resumed"
	case s.Stops():
		return "its tasks are called off until it is requeued"
	case s == lifecycle.JobRequeueing:
		return "its tasks are being put back"
	case s == lifecycle.JobPending:
		return "none of its tasks runs yet"
	}
	return ""
}

// reason is what tasks that wait for the same have in common.
type reason struct{ gist, text string }

// wait puts tasks that wait for the same together, and returns how many wait.
func (a *Explanation) wait(j *robotv1.Job, p *Parts, now time.Time) int {
	by := map[reason]*Waiting{}
	ahead := p.ahead()
	total := 0
	for _, t := range slices.SortedFunc(slices.Values(p.Tasks), func(a, b *robotv1.Task) int { return strings.Compare(a.Name, b.Name) }) {
		v := view{task: t, job: j, ahead: ahead(t), now: now}
		if !v.lingers() {
			continue
		}
		total++
		why := v.reason()
		w := by[why]
		if w == nil {
			w = &Waiting{Tasks: []string{}, Gist: why.gist, Text: why.text, Refused: readRefused(why.text)}
			by[why] = w
		}
		if w.Count++; len(w.Tasks) < maxNames {
			w.Tasks = append(w.Tasks, t.Name)
		}
	}
	a.tell(slices.Collect(maps.Values(by)))
	return total
}

// tell keeps the most frequent reasons.
func (a *Explanation) tell(all []*Waiting) {
	slices.SortFunc(all, func(a, b *Waiting) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Tasks[0], b.Tasks[0]))
	})
	for i, w := range all {
		if i < maxReasons {
			a.Tasks = append(a.Tasks, *w)
			continue
		}
		a.More += w.Count
	}
}

// lingers tells whether the task waits for something that may take a while. Without it a job
// that is well would always have some that wait: for the word of their robots, or the manager.
func (v *view) lingers() bool {
	if v.state() == lifecycle.TaskDispatching {
		return v.secretsText() != "" || v.stops()
	}
	if v.state() == lifecycle.TaskExited {
		return v.nextTry() != ""
	}
	return v.waits()
}

// reason is what a task waits for without what is its alone: the robot that an init task
// is on, and the second of its next try.
func (v *view) reason() reason {
	gist, text := v.gist(), ""
	switch awaited := v.awaited(); {
	case v.retries() && (v.heldBack() || v.nextTry() != ""):
	case awaited != nil:
		gist = "it waits for init task " + awaited.name
	default:
		text = cmp.Or(v.placementText(), v.secretsText(), v.lostText())
	}
	return reason{gist, text}
}

// ahead finds the init tasks before each task.
func (p *Parts) ahead() func(*robotv1.Task) []initTask {
	groups, replicas := map[string]*robotv1.TaskGroup{}, map[string][]*robotv1.Task{}
	for _, g := range p.Groups {
		if len(g.Spec.InitTasks) > 0 {
			groups[g.Name] = g
		}
	}
	replica := func(t *robotv1.Task) string { return t.Spec.TaskGroupName + "/" + t.Labels[robotv1.LabelTaskIndex] }
	for _, t := range p.Tasks {
		if groups[t.Spec.TaskGroupName] != nil {
			replicas[replica(t)] = append(replicas[replica(t)], t)
		}
	}
	return func(t *robotv1.Task) []initTask {
		g := groups[t.Spec.TaskGroupName]
		if g == nil {
			return nil
		}
		return before(t.Spec.Name, g.Spec.InitTasks, replicas[replica(t)])
	}
}
