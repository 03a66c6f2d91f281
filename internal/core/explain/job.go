package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// NoState is the text for a Job without a state.
const NoState = "without a state yet"

const (
	maxReasons = 8 // listed reasons of a job's tasks
	maxNames   = 5 // listed tasks of one reason
)

// Parts are the groups and tasks of a job, in any order.
type Parts struct {
	Groups []*robotv1.TaskGroup
	Tasks  []*robotv1.Task
	// Hold is the reason for which no task of the cluster is placed. If empty, there is none.
	Hold string
}

// ExplainJob returns what the tasks of a job wait for. If p is nil, the caller may not read them.
func ExplainJob(j *robotv1.Job, p *Parts, now time.Time) *Explanation {
	a := &Explanation{State: cmp.Or(j.Status.State, NoState), Facts: []Fact{}}
	a.addFact("unconfirmed", UnconfirmedStopsText(&j.Status.TaskCounts))
	if lifecycle.JobState(j.Status.State).IsTerminal() && actions.NextJobState(j) == lifecycle.JobState(j.Status.State) {
		a.addFact("message", j.Status.StatusDescription)
		return a
	}
	waiting := 0
	if p == nil {
		a.addFact("tasks", "hidden: you do not have permission to read them")
	} else {
		waiting = a.groupWaiting(j, p, now)
	}
	a.Summary = jobSummary(j, waiting)
	a.IsWaiting = a.Summary != ""
	if next := actions.NextJobState(j); string(next) != j.Status.State {
		a.addFact("next state", string(next))
	}
	a.addFact("message", j.Status.StatusDescription)
	return a
}

// jobSummary returns the most important fact about a job. It is empty if none of its tasks waits.
func jobSummary(j *robotv1.Job, waiting int) string {
	if j.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	if j.Status.State == "" {
		return "the manager has not processed it yet"
	}
	if text := stateConsequence(actions.NextJobState(j)); text != "" {
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

// describeJob returns the job's state, the next one if it is about to change, and what that means
// for its tasks.
func describeJob(j *robotv1.Job) string {
	text, next := cmp.Or(j.Status.State, NoState), actions.NextJobState(j)
	if j.Status.State != "" && string(next) != j.Status.State {
		text += ", next state " + string(next)
	}
	if means := stateConsequence(next); means != "" {
		text += ": " + means
	}
	return text
}

// stateConsequence returns what a state of a job means for its tasks. It is empty if they run.
func stateConsequence(s lifecycle.JobState) string {
	switch {
	case s.PausesTasks():
		return "its pending tasks do not start until it is resumed"
	case s.CancelsTasks():
		return "its tasks do not run until it is requeued"
	case s == lifecycle.JobRequeueing:
		return "its tasks are being requeued"
	case s == lifecycle.JobPending:
		return "none of its tasks is running yet"
	}
	return ""
}

// waitingReason is what tasks that wait for the same reason have in common.
type waitingReason struct{ summary, text string }

// groupWaiting groups tasks that wait for the same reason, and returns how many wait.
func (a *Explanation) groupWaiting(j *robotv1.Job, p *Parts, now time.Time) int {
	by := map[waitingReason]*Waiting{}
	ahead := p.initTaskFinder()
	total := 0
	for _, t := range slices.SortedFunc(slices.Values(p.Tasks), func(a, b *robotv1.Task) int { return strings.Compare(a.Name, b.Name) }) {
		v := view{task: t, job: j, ahead: ahead(t), hold: p.Hold, now: now}
		if !v.mayWaitLong() {
			continue
		}
		total++
		reason := v.waitingReason()
		w := by[reason]
		if w == nil {
			w = &Waiting{Tasks: []string{}, Summary: reason.summary, Text: reason.text, Rejections: listRejections(v.rejectionData())}
			by[reason] = w
		}
		if w.Count++; len(w.Tasks) < maxNames {
			w.Tasks = append(w.Tasks, t.Name)
		}
	}
	a.addMostFrequent(slices.Collect(maps.Values(by)))
	return total
}

// addMostFrequent keeps the most frequent reasons.
func (a *Explanation) addMostFrequent(all []*Waiting) {
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

// mayWaitLong reports whether the task waits for something that may take a while. A healthy job
// always has tasks that wait for a report or for the manager; they are not listed.
func (v *view) mayWaitLong() bool {
	if v.holdText() != "" {
		return true
	}
	if v.taskState() == lifecycle.TaskDispatching {
		return v.secretsText() != "" || v.isStopping()
	}
	if v.taskState() == lifecycle.TaskExited {
		return v.nextRetryText() != ""
	}
	return v.isWaiting()
}

// waitingReason returns why a task waits, without details that differ between tasks: the robot of
// an init task and the time of the next attempt.
func (v *view) waitingReason() waitingReason {
	summary, text := v.summary(), ""
	switch awaited := v.firstAwaited(); {
	case v.holdText() != "":
	case v.mayRetry() && (v.isHeldBack() || v.nextRetryText() != ""):
	case awaited != nil:
		summary = "it waits for init task " + awaited.name
	default:
		text = cmp.Or(v.placementText(), v.secretsText(), v.lostRobotText())
	}
	return waitingReason{summary, text}
}

// initTaskFinder returns a function that finds the init tasks before a task.
func (p *Parts) initTaskFinder() func(*robotv1.Task) []initTask {
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
		return initTasksBefore(t.Spec.Name, g.Spec.InitTasks, replicas[replica(t)])
	}
}
