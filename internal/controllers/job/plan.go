package job

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// DefaultTick is the default of Controller.Tick.
const DefaultTick = 250 * time.Millisecond

// constructionTicks is for how many ticks a new job is not shown as under construction. Its groups write
// their first statuses within one tick, so the job's first one usually includes them.
const constructionTicks = 2

// Input holds everything that a decision about one Job depends on.
type Input struct {
	Job *v1alpha1.Job
	// Groups are the existing groups of the job, by their name in the job.
	Groups map[string]*v1alpha1.TaskGroup
	// Creating holds the names of created groups that the cache does not show yet.
	Creating map[string]bool
	// TakenNames are names of objects of other owners.
	TakenNames map[string]bool
	// LastStatus is when the status was last written, or the job was first seen.
	LastStatus time.Time
	// Archives is true if ended jobs stay until they are archived.
	Archives bool
	// Revisions are the stored revisions of the job, in any order. A batch job has none.
	Revisions []*appsv1.ControllerRevision
	// AwaitsRevisions is true while the cache does not show the controller's last write of a revision.
	AwaitsRevisions bool
	// TakenRevisionNames are names of revisions of other owners.
	TakenRevisionNames map[string]bool
	// Rollouts are those of the job.
	Rollouts []v1alpha1.Rollout
	// AwaitedByFlow is true if the flow of the job has not recorded its end yet.
	AwaitedByFlow bool
}

// Actions is what the controller does after one Plan.
type Actions struct {
	Create []*v1alpha1.TaskGroup
	// Update are existing groups with the current definition of the job.
	Update []*v1alpha1.TaskGroup
	// Revisions are the changes of the job's revisions.
	Revisions RevisionActions
	// Status is the status to write, or nil if it is unchanged.
	Status *v1alpha1.JobStatus
	// Delete is true if the job's ttlSecondsAfterFinished is over.
	Delete bool
	// RequeueAt is when to reconcile again. Zero waits for the next watch event.
	RequeueAt time.Time
	// Changes are the changes of the state in order. Each becomes an event.
	Changes []taskcounts.Change
	// Rejected is the message about a requeue that is not possible, or empty.
	Rejected string
	// Reasons has one line for each decision, for the log.
	Reasons []string
}

// Plan returns the actions for one Job. tick is the least time between two status writes
// that only show progress.
func Plan(now time.Time, tick time.Duration, w Input) Actions {
	p := &plan{now: now, tick: tick, Input: w}
	if w.Job.DeletionTimestamp != nil {
		return p.out
	}
	p.planRevisions()
	if hasEnded(w.Job) && p.requestedChange(w.Job.Status.DeepCopy(), p.countTasks()).To == "" {
		if !taskcounts.AwaitsTasks(w.Job) {
			p.planExpiry()
		}
		if !p.out.Delete && p.hasNewCounts() {
			p.planStatus()
		}
		return p.out
	}
	if len(w.Creating) > 0 {
		// There is no event if a group was deleted while the watch was down.
		p.requeueAt(now.Add(kit.ExpectationLifetime))
	}
	p.out.Revisions = p.revisions.actions
	if p.jobState().StartsTasks() || p.jobState().PausesTasks() {
		p.planCreates()
		p.planUpdates()
	}
	p.planStatus()
	return p.out
}

// hasEnded reports whether the job and all of its tasks have ended. It uses the job's own
// counts, which stay when a user deletes its groups.
func hasEnded(j *v1alpha1.Job) bool {
	var c lifecycle.Counts
	taskcounts.AddTo(&c, j.Status.TaskCounts)
	mayHaveNone := v1alpha1.IsKeptRunning(j.Spec.Type) || v1alpha1.RunsOnEveryRobot(j.Spec.Type)
	return (c.Total > 0 || mayHaveNone) && taskcounts.HasEnded(lifecycle.JobState(j.Status.State), c)
}

// hasNewCounts reports whether the counts of the groups differ from those of an ended job,
// because a group requeued its tasks just when the job ended.
func (p *plan) hasNewCounts() bool {
	return p.hasAllGroups() && taskcounts.ToStatus(p.countTasks()) != p.Job.Status.TaskCounts
}

// plan is the state of one call of Plan.
type plan struct {
	Input
	now  time.Time
	tick time.Duration
	out  Actions

	revisions revisionPlan
}

func (p *plan) requeueAt(at time.Time) {
	kit.SetEarliest(&p.out.RequeueAt, at)
}

func (p *plan) jobState() lifecycle.JobState { return lifecycle.JobState(p.Job.Status.State) }

// planCreates adds the missing groups. If the current revision is about to be known, they wait for it.
func (p *plan) planCreates() {
	if rollout.IsUsedBy(p.Job) && p.revisions.content == nil && p.AwaitsRevisions {
		return
	}
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		name := groupName(p.Job, def.Name, p.TakenNames)
		if p.Groups[def.Name] == nil && !p.Creating[name] {
			p.out.Create = append(p.out.Create, newGroup(p.Job, def.Name, p.wantedTemplate(def, nil), name))
			p.out.Reasons = append(p.out.Reasons, "create task group "+name)
		}
	}
}

// planUpdates adds the groups whose definition changed.
func (p *plan) planUpdates() {
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		g := p.Groups[def.Name]
		if g == nil || p.isUpToDate(g, def) {
			continue
		}
		next := g.DeepCopy()
		next.Spec.TaskGroupTemplate = *p.wantedTemplate(def, g).DeepCopy()
		p.out.Update = append(p.out.Update, next)
		p.out.Reasons = append(p.out.Reasons, "update task group "+g.Name)
	}
}

// isUpToDate reports whether a group has the definition that its job gives it.
func (p *plan) isUpToDate(g *v1alpha1.TaskGroup, def *v1alpha1.TaskGroupDefinition) bool {
	return equality.Semantic.DeepEqual(&g.Spec.TaskGroupTemplate, p.wantedTemplate(def, g))
}

// hasChangingGroup reports whether a group has not observed its current definition yet.
// Its counts are old then, and a job that is scaled up could end too early.
func (p *plan) hasChangingGroup() bool {
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		g := p.Groups[def.Name]
		if g != nil && (!p.isUpToDate(g, def) || g.Status.State != "" && g.Status.ObservedGeneration != g.Generation) {
			return true
		}
	}
	return false
}

// isUnsettled reports whether tasks of the job may start or run that the groups' counts do not show:
// these counts may be older than the last change of the job's state.
func (p *plan) isUnsettled(s *v1alpha1.JobStatus) bool {
	for _, g := range p.Groups {
		if g.Status.ObservedStateChanges < s.StateChanges {
			return true
		}
	}
	return len(p.Creating)+len(p.out.Create) > 0
}

// countTasks counts all tasks of the job. The tasks of a group without a status count as
// pending.
func (p *plan) countTasks() lifecycle.Counts {
	c := lifecycle.Counts{KeepsOpen: v1alpha1.IsKeptRunning(p.Job.Spec.Type) || p.awaitsRobots() || p.hasChangingGroup()}
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		if g := p.Groups[def.Name]; g != nil && g.Status.State != "" {
			taskcounts.AddTo(&c, g.Status.TaskCounts)
			continue
		}
		n := p.groupTaskCount(p.wantedTemplate(def, nil))
		c.Total += n
		if p.jobState().CancelsTasks() {
			c.AddTasks(lifecycle.TaskCanceled, n)
		}
	}
	return c
}

// groupTaskCount returns the number of tasks of a group without a status. For a system or sysbatch
// job it is 0: only the group knows the matching robots.
func (p *plan) groupTaskCount(g *v1alpha1.TaskGroupTemplate) int {
	if v1alpha1.RunsOnEveryRobot(p.Job.Spec.Type) {
		return 0
	}
	if g.Array != nil {
		return array.Count(g.Array)
	}
	count := 1
	if g.Count != nil {
		count = int(*g.Count)
	}
	return count * g.TasksPerReplica()
}

// hasAllGroups reports whether every group exists and has created its first tasks.
func (p *plan) hasAllGroups() bool {
	for i := range p.Job.Spec.TaskGroups {
		g := p.Groups[p.Job.Spec.TaskGroups[i].Name]
		if g == nil || g.Status.State == "" {
			return false
		}
	}
	return true
}

// planStatus sets the status to write, if it changed and is due.
func (p *plan) planStatus() {
	counts := p.countTasks()
	s := p.Job.Status.DeepCopy()
	s.TaskCounts = taskcounts.ToStatus(counts)
	p.setRevisions(s)
	s.Blocklist = p.collectBlocklist()
	urgent := p.advanceState(s, counts)
	at := metav1.NewMicroTime(p.now)
	if s.StartedAt == nil && taskcounts.HasStarted(counts) {
		s.StartedAt, urgent = &at, true
	}
	if s.CompletedAt == nil && lifecycle.JobState(s.State).IsTerminal() {
		s.CompletedAt = &at
	}
	if equality.Semantic.DeepEqual(*s, p.Job.Status) {
		return
	}
	last := taskcounts.HasEnded(lifecycle.JobState(s.State), counts)
	if ready := p.progressDue(s); !urgent && !last && p.now.Before(ready) {
		p.requeueAt(ready)
		return
	}
	p.out.Status = s
}

// progressDue returns when a status that only shows progress is written.
func (p *plan) progressDue(s *v1alpha1.JobStatus) time.Time {
	if lifecycle.JobState(s.State) == lifecycle.JobUnderConstruction {
		return p.LastStatus.Add(constructionTicks * p.tick)
	}
	return p.LastStatus.Add(p.tick)
}

// advanceState applies the state machine until the state is stable, and reports whether
// the change of the state or of the requeue is written at once.
func (p *plan) advanceState(s *v1alpha1.JobStatus, counts lifecycle.Counts) (urgent bool) {
	was := &p.Job.Status
	for {
		c := p.nextChange(s, counts)
		if c.To == "" {
			isProgress := lifecycle.IsProgress(lifecycle.JobState(was.State), lifecycle.JobState(s.State))
			return s.State != was.State && !isProgress || !equality.Semantic.DeepEqual(s.Requeue, was.Requeue)
		}
		p.applyChange(s, c)
	}
}

// nextChange returns the next change of the state, or an empty one. What the user
// requested comes first.
func (p *plan) nextChange(s *v1alpha1.JobStatus, counts lifecycle.Counts) taskcounts.Change {
	state := lifecycle.JobState(s.State)
	switch {
	case state == "":
		return taskcounts.Change{To: lifecycle.JobUnderConstruction, Why: "its task groups are being created"}
	case state == lifecycle.JobUnderConstruction && p.hasAllGroups():
		return taskcounts.Change{To: lifecycle.JobPending, Why: "every task group has created its first tasks"}
	case state == lifecycle.JobRequeueing && p.hasRequeuedTasks(s):
		clearTimes(s)
		if s.Requeue != nil {
			s.Requeue.RemainingFailedTasks = int32(counts.In[lifecycle.TaskFailed])
		}
		return taskcounts.Change{To: lifecycle.JobPending, Why: "its tasks were requeued"}
	}
	if c := p.requestedChange(s, counts); c.To != "" {
		return c
	}
	if to, ok := lifecycle.StepJob(state, lifecycle.JobOverdue); ok && p.isOverdue(s) {
		if !p.isDoneAtDeadline(counts) {
			return taskcounts.Change{To: to, Why: "it exceeded its activeDeadline", Reason: taskcounts.ReasonDeadline}
		}
		counts.KeepsOpen = false
	}
	counts.IsUnsettled = p.isUnsettled(s)
	to, why := lifecycle.JobAfterTasks(state, counts, p.maxFailedPercent(s, counts))
	if to == state {
		return taskcounts.Change{}
	}
	if to == lifecycle.JobFailed {
		why += p.describeFailedGroups()
	}
	return taskcounts.Change{To: to, Why: why}
}

// maxFailedPercent returns the percentage of failed tasks above which the job fails. Failed
// tasks that a requeue left alone do not fail the job before the requeued ones have run.
func (p *plan) maxFailedPercent(s *v1alpha1.JobStatus, counts lifecycle.Counts) int {
	ended := counts.TerminalCount() == counts.Total
	if s.Requeue != nil && !ended && counts.In[lifecycle.TaskFailed] <= int(s.Requeue.RemainingFailedTasks) {
		return 101
	}
	return taskcounts.MaxFailedPercent(p.Job)
}

func (p *plan) applyChange(s *v1alpha1.JobStatus, c taskcounts.Change) {
	s.State, s.Status, s.StatusDescription = string(c.To), string(c.To), c.StatusDescription()
	s.StateChanges++
	taskcounts.SetConditions(&s.Conditions, p.now, p.Job.Generation, c)
	p.out.Changes = append(p.out.Changes, c)
	p.out.Reasons = append(p.out.Reasons, s.StatusDescription)
}

// describeFailedGroups returns the failures of the groups in parentheses.
func (p *plan) describeFailedGroups() string {
	var parts []string
	for i := range p.Job.Spec.TaskGroups {
		name := p.Job.Spec.TaskGroups[i].Name
		if why := groupFailure(p.Groups[name]); why != "" {
			parts = append(parts, fmt.Sprintf("%s: %s", name, why))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// groupFailure returns why a group failed. If too many of its tasks failed, it returns the
// empty string, because the job fails for the same reason.
func groupFailure(g *v1alpha1.TaskGroup) string {
	if g == nil {
		return ""
	}
	for _, c := range g.Status.Conditions {
		if c.Type == v1alpha1.ConditionFailed && c.Status == metav1.ConditionTrue && c.Reason != taskcounts.ReasonTooManyFailedTasks {
			return c.Message
		}
	}
	return ""
}
