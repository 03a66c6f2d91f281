// Package preview computes what would follow if an object was applied. It has no rules of its own: it runs the
// planners of the controllers and of the scheduler on copies of what exists.
package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/scheduler"
)

// World is what exists around a Job. Nothing of it is changed.
type World struct {
	// Job is the existing one. Nil if it is about to be created.
	Job *v1alpha1.Job
	// Groups are the TaskGroups of the Job, by their name in it.
	Groups map[string]*v1alpha1.TaskGroup
	// Tasks are those of the groups, by the UID of their group.
	Tasks map[types.UID][]*v1alpha1.Task
	// Revisions and Rollouts are those of the Job.
	Revisions []*appsv1.ControllerRevision
	Rollouts  []v1alpha1.Rollout
	// Robots are all robots. They matter only for jobs that run on every robot.
	Robots []v1alpha1.Robot
	// Config is that of the controller of task groups.
	Config taskgroup.Config
	// Place returns what the scheduler would decide now.
	Place func(now time.Time, j *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview
	// HideValues leaves what robots have out of the reasons: the caller may not read all of them.
	HideValues bool
	// IsExpired is asked during the computation; once it returns true, the rest is only counted.
	IsExpired func() bool
}

// groupPreview is a group with what follows for it.
type groupPreview struct {
	group  *v1alpha1.TaskGroup
	action plan.Action
	taskgroup.Preview
}

// PlanJob returns what would follow if a Job was created, or changed to next. next has the status and the
// generation that it would have then.
func PlanJob(now time.Time, w World, next *v1alpha1.Job) (*plan.Plan, error) {
	p := &plan.Plan{Kind: "Job", Namespace: next.Namespace, Name: next.Name, Action: describeAction(w.Job, next)}
	if p.Action == plan.None {
		return p, nil
	}
	actions := job.Plan(now, job.DefaultTick, job.Input{Job: next, Groups: w.Groups, Revisions: w.Revisions, Rollouts: w.Rollouts})
	if r := actions.Revisions.Create; r != nil {
		p.Revision = r.Revision
	}
	p.Notes = describeJob(w.Job, next, p.Revision)
	if w.Job != nil && equality.Semantic.DeepEqual(w.Job.Spec, next.Spec) {
		return p, nil
	}
	previews, omitted, err := w.previewGroups(now, next, actions)
	if err != nil {
		return nil, err
	}
	if omitted > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the time for a plan ran out: the last %d task groups of the Job are not in it", omitted))
	}
	placed := w.place(now, next, previews)
	p.Notes = append(p.Notes, describePlacement(previews, placed)...)
	for i := range previews {
		p.TaskGroups = append(p.TaskGroups, previews[i].describe(placed, w.HideValues))
	}
	return p, nil
}

// describeAction returns what applying does with the object itself.
func describeAction(was, next *v1alpha1.Job) plan.Action {
	switch {
	case was == nil:
		return plan.Create
	case equality.Semantic.DeepEqual(was.Spec, next.Spec) && equality.Semantic.DeepEqual(was.Labels, next.Labels) &&
		equality.Semantic.DeepEqual(ownAnnotations(was), ownAnnotations(next)):
		return plan.None
	}
	return plan.Update
}

// ownAnnotations returns the annotations without the file that kubectl apply keeps: it changes with the order of a
// file's fields.
func ownAnnotations(j *v1alpha1.Job) map[string]string {
	out := maps.Clone(j.Annotations)
	delete(out, corev1.LastAppliedConfigAnnotation)
	return out
}

// previewGroups returns what follows for each group, in the order of the Job's spec, and how many groups it omits
// because the time has run out.
func (w *World) previewGroups(now time.Time, next *v1alpha1.Job, actions job.Actions) (out []groupPreview, omitted int, err error) {
	groups := w.nextGroups(next, actions)
	for i, g := range groups {
		if w.IsExpired != nil && w.IsExpired() {
			return out, len(groups) - i, nil
		}
		in := taskgroup.PreviewInput{Group: g.group, Job: next, Tasks: w.Tasks[g.group.UID], Robots: w.Robots, IsExpired: w.IsExpired}
		if in.Rollout = rollout.FindEffective(w.Rollouts, next); in.Rollout != nil {
			in.Target = findRevision(w.Revisions, in.Rollout.Status.Revision)
		}
		if g.Preview, err = taskgroup.PreviewGroup(now, w.Config, in); err != nil {
			return nil, 0, fmt.Errorf("task group %s: %w", g.group.Spec.GroupName, err)
		}
		out = append(out, g)
	}
	return out, 0, nil
}

// nextGroups returns the TaskGroups as the job controller writes them.
func (w *World) nextGroups(next *v1alpha1.Job, actions job.Actions) []groupPreview {
	byName := map[string]groupPreview{}
	for name, g := range w.Groups {
		byName[name] = groupPreview{group: g.DeepCopy(), action: plan.None}
	}
	for _, g := range actions.Update {
		g.Generation++
		byName[g.Spec.GroupName] = groupPreview{group: g, action: plan.Update}
	}
	for _, g := range actions.Create {
		g.UID, g.Generation = types.UID("preview/"+g.Name), 1
		byName[g.Spec.GroupName] = groupPreview{group: g, action: plan.Create}
	}
	var out []groupPreview
	for i := range next.Spec.TaskGroups {
		if g, ok := byName[next.Spec.TaskGroups[i].Name]; ok {
			out = append(out, g)
		}
	}
	return out
}

func findRevision(all []*appsv1.ControllerRevision, number int64) *appsv1.ControllerRevision {
	i := slices.IndexFunc(all, func(r *appsv1.ControllerRevision) bool { return r.Revision == number })
	if i < 0 {
		return nil
	}
	return all[i]
}

// maxPlaced is how many replicas of all groups together get a robot in a plan.
const maxPlaced = 2000

// place asks the scheduler about the new replicas of all groups at once, because they compete for room. Beyond
// maxPlaced they are left out, and a gang that exceeds it as a whole.
func (w *World) place(now time.Time, next *v1alpha1.Job, previews []groupPreview) scheduler.Preview {
	var groups []scheduler.PreviewGroup
	room := maxPlaced
	for i := range previews {
		demands := previews[i].Demands
		if len(demands) > room && previews[i].group.Spec.Gang {
			continue
		}
		demands = demands[:min(len(demands), room)]
		room -= len(demands)
		if len(demands) > 0 {
			groups = append(groups, scheduler.PreviewGroup{Group: previews[i].group, Demands: demands})
		}
	}
	if len(groups) == 0 || w.Place == nil {
		return scheduler.Preview{}
	}
	return w.Place(now, next, groups)
}

// describePlacement returns notes about replicas that were not placed because of the bounds of a plan.
func describePlacement(previews []groupPreview, placed scheduler.Preview) (notes []string) {
	total := 0
	for i := range previews {
		total += len(previews[i].Demands)
	}
	if total > maxPlaced {
		notes = append(notes, fmt.Sprintf("%d new replicas need a robot, and the first %d are placed, a gang only as a whole; others have no robot in this plan", total, maxPlaced))
	}
	if placed.IsPartial {
		notes = append(notes, "the time for a plan ran out: new tasks without a robot and without a reason were not placed")
	}
	return notes
}

// describeJob returns notes about the Job as a whole.
func describeJob(was, next *v1alpha1.Job, number int64) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if was == nil {
		return nil
	}
	onlyMetadata := equality.Semantic.DeepEqual(was.Spec, next.Spec)
	switch {
	case onlyMetadata:
		add("only labels or annotations change; no task changes")
	case lifecycle.JobState(was.Status.State).IsTerminal():
		add("the job has ended (%s): what its tasks run changes only if they are requeued", was.Status.State)
	case number > 0 && rollout.IsUsedBy(next):
		add("makes revision %d and changes no task that runs; `k8s4r rollout start %s` changes them", number, next.Name)
	}
	if to := desiredState(next); to != desiredState(was) {
		add("desiredState changes from %s to %s", desiredState(was), to)
	}
	if a, b := priorityOf(was), priorityOf(next); a != b {
		add("priority changes from %d to %d: it counts for tasks that wait", a, b)
	}
	return notes
}

func desiredState(j *v1alpha1.Job) string {
	return cmp.Or(j.Spec.DesiredState, v1alpha1.DesiredRunning)
}

func priorityOf(j *v1alpha1.Job) int32 {
	if j.Spec.Priority == nil {
		return defaultPriority
	}
	return *j.Spec.Priority
}
