package job

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// DefaultTick is the least time between two writes of a status that only
// count.
const DefaultTick = 250 * time.Millisecond

// World is all that a decision about one Job depends on.
type World struct {
	Job *v1alpha1.Job
	// Groups of the job that exist, by their name in the job.
	Groups map[string]*v1alpha1.TaskGroup
	// Creating names the objects that were created and do not show yet.
	Creating map[string]bool
	// Taken names objects that belong to somebody else.
	Taken map[string]bool
	// LastStatus is when the status was last written.
	LastStatus time.Time
	// Archives: the manager keeps an archive, and a job that has ended stays until it is
	// in there.
	Archives bool
	// Awaited: a flow that the job is a step of has not recorded its end.
	Awaited bool
}

// Steps is what to do, and when to look again.
type Steps struct {
	Create []*v1alpha1.TaskGroup
	// Update are groups that are to be what the job says of them now.
	Update []*v1alpha1.TaskGroup
	// Status to write. Nil: as it is.
	Status *v1alpha1.JobStatus
	// Delete the job, because its time to live is over.
	Delete bool
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Changes of the state, in order, for people.
	Changes []progress.Change
	// Refused is a sentence about a wish that is not possible. Empty: none.
	Refused string
	// Why has one line for each decision.
	Why []string
}

// Plan decides what follows for one Job. tick is the least time between two
// writes that only count.
func Plan(now time.Time, tick time.Duration, w World) Steps {
	p := &plan{now: now, tick: tick, World: w}
	if w.Job.DeletionTimestamp != nil {
		return p.out
	}
	if ended(w.Job) && p.wished(w.Job.Status.DeepCopy(), p.counts()).To == "" {
		if p.expire(); !p.out.Delete && p.stirs() {
			p.account()
		}
		return p.out
	}
	if len(w.Creating) > 0 {
		// Of a group that was deleted while the watch was cut off no word comes.
		p.wake(now.Add(expect.Lifetime))
	}
	if p.state().Starts() {
		p.create()
	}
	if p.state().Starts() || p.state().Holds() {
		p.update()
	}
	p.account()
	return p.out
}

// ended tells whether the job and all of its tasks are at their end. Its counts
// stay what they were when somebody deletes its groups.
func ended(j *v1alpha1.Job) bool {
	var c lifecycle.Counts
	progress.AddTo(&c, j.Status.TaskCounts)
	return (c.Total > 0 || v1alpha1.KeptRunning(j.Spec.Type)) && progress.Ended(lifecycle.JobState(j.Status.State), c)
}

// stirs tells whether the groups of a job that has ended count otherwise than it
// does: one was about to put its tasks back when the job ended.
func (p *plan) stirs() bool {
	return p.constructed() && progress.Write(p.counts()) != p.Job.Status.TaskCounts
}

// plan is a decision in the making.
type plan struct {
	World
	now  time.Time
	tick time.Duration
	out  Steps
}

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

func (p *plan) state() lifecycle.JobState { return lifecycle.JobState(p.Job.Status.State) }

// create decides which groups are missing.
func (p *plan) create() {
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		name := groupName(p.Job, def.Name, p.Taken)
		if p.Groups[def.Name] == nil && !p.Creating[name] {
			p.out.Create = append(p.out.Create, newGroup(p.Job, def, name))
			p.out.Why = append(p.out.Why, "create task group "+name)
		}
	}
}

// update decides which groups are not what the job says of them any more.
func (p *plan) update() {
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		g := p.Groups[def.Name]
		if g == nil || same(g, def) {
			continue
		}
		next := g.DeepCopy()
		next.Spec.TaskGroupTemplate = *def.TaskGroupTemplate.DeepCopy()
		p.out.Update = append(p.out.Update, next)
		p.out.Why = append(p.out.Why, "change task group "+g.Name)
	}
}

func same(g *v1alpha1.TaskGroup, def *v1alpha1.TaskGroupDefinition) bool {
	return equality.Semantic.DeepEqual(&g.Spec.TaskGroupTemplate, &def.TaskGroupTemplate)
}

// changing tells whether a group has yet to take in what the job says of it. Its
// counts are those of what it was: a job that grows would end before it has.
func (p *plan) changing() bool {
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		g := p.Groups[def.Name]
		if g != nil && (!same(g, def) || g.Status.State != "" && g.Status.ObservedGeneration != g.Generation) {
			return true
		}
	}
	return false
}

// counts are all tasks of the job. Those of a group that says nothing yet wait.
func (p *plan) counts() lifecycle.Counts {
	c := lifecycle.Counts{Open: v1alpha1.KeptRunning(p.Job.Spec.Type) || p.changing()}
	for i := range p.Job.Spec.TaskGroups {
		def := &p.Job.Spec.TaskGroups[i]
		if g := p.Groups[def.Name]; g != nil && g.Status.State != "" {
			progress.AddTo(&c, g.Status.TaskCounts)
			continue
		}
		n := p.total(&def.TaskGroupTemplate)
		c.Total += n
		if p.state().Stops() {
			c.AddN(lifecycle.TaskCanceled, n)
		}
	}
	return c
}

// total is the number of tasks of a group that has not counted them itself. One
// of a system job goes by the robots, of which only it knows.
func (p *plan) total(g *v1alpha1.TaskGroupTemplate) int {
	if p.Job.Spec.Type == v1alpha1.JobTypeSystem {
		return 0
	}
	count := 1
	if g.Count != nil {
		count = int(*g.Count)
	}
	return count * g.Size()
}

// constructed tells whether every group exists, and with it its first tasks.
func (p *plan) constructed() bool {
	for i := range p.Job.Spec.TaskGroups {
		g := p.Groups[p.Job.Spec.TaskGroups[i].Name]
		if g == nil || g.Status.State == "" {
			return false
		}
	}
	return true
}

// account decides what the status says, and whether it is worth a write now.
func (p *plan) account() {
	counts := p.counts()
	s := p.Job.Status.DeepCopy()
	s.TaskCounts = progress.Write(counts)
	s.ObservedGeneration = p.Job.Generation
	s.Blocklist = p.blocklist()
	changed := p.advance(s, counts)
	at := metav1.NewMicroTime(p.now)
	if s.StartedAt == nil && progress.Started(counts) {
		s.StartedAt, changed = &at, true
	}
	if s.CompletedAt == nil && lifecycle.JobState(s.State).Terminal() {
		s.CompletedAt = &at
	}
	if equality.Semantic.DeepEqual(*s, p.Job.Status) {
		return
	}
	last := progress.Ended(lifecycle.JobState(s.State), counts)
	if ready := p.LastStatus.Add(p.tick); !changed && !last && p.now.Before(ready) {
		p.wake(ready)
		return
	}
	p.out.Status = s
}

// advance follows the state machine until nothing changes any more, and tells
// whether anything did.
func (p *plan) advance(s *v1alpha1.JobStatus, counts lifecycle.Counts) bool {
	for {
		c := p.following(s, counts)
		if c.To == "" {
			return s.State != p.Job.Status.State || !equality.Semantic.DeepEqual(s.Requeue, p.Job.Status.Requeue)
		}
		p.become(s, c)
	}
}

// following is the next change of the job. Empty: none. The operator's wish
// comes first.
func (p *plan) following(s *v1alpha1.JobStatus, counts lifecycle.Counts) progress.Change {
	state := lifecycle.JobState(s.State)
	switch {
	case state == "":
		return progress.Change{To: lifecycle.JobUnderConstruction, Why: "its task groups are being created"}
	case state == lifecycle.JobUnderConstruction && p.constructed():
		return progress.Change{To: lifecycle.JobPending, Why: "every task group has its first tasks"}
	case state == lifecycle.JobRequeueing && p.putBack(s):
		reopen(s)
		if s.Requeue != nil {
			s.Requeue.Failed = int32(counts.In[lifecycle.TaskFailed])
		}
		return progress.Change{To: lifecycle.JobPending, Why: "its tasks were put back"}
	}
	if c := p.wished(s, counts); c.To != "" {
		return c
	}
	if to, ok := lifecycle.StepJob(state, lifecycle.JobOverdue); ok && p.overdue(s) {
		return progress.Change{To: to, Why: "it took longer than its activeDeadline", Reason: progress.ReasonDeadline}
	}
	to, why := lifecycle.JobAfterTasks(state, counts, p.maxFailedPercent(s, counts))
	if to == state {
		return progress.Change{}
	}
	if to == lifecycle.JobFailed {
		why += p.blame()
	}
	return progress.Change{To: to, Why: why}
}

// maxFailedPercent is the share of failed tasks at which the job fails. Those
// that a requeue has left as they were do not fail it again before the tasks
// that were put back have run.
func (p *plan) maxFailedPercent(s *v1alpha1.JobStatus, counts lifecycle.Counts) int {
	ended := counts.Terminal() == counts.Total
	if s.Requeue != nil && !ended && counts.In[lifecycle.TaskFailed] <= int(s.Requeue.Failed) {
		return 101
	}
	return progress.MaxFailedPercent(p.Job)
}

func (p *plan) become(s *v1alpha1.JobStatus, c progress.Change) {
	s.State, s.Status, s.StatusDescription = string(c.To), string(c.To), c.Describe()
	progress.Mark(&s.Conditions, p.now, p.Job.Generation, c)
	p.out.Changes = append(p.out.Changes, c)
	p.out.Why = append(p.out.Why, s.StatusDescription)
}

// blame says what the failed groups say of themselves.
func (p *plan) blame() string {
	var parts []string
	for i := range p.Job.Spec.TaskGroups {
		name := p.Job.Spec.TaskGroups[i].Name
		if why := failure(p.Groups[name]); why != "" {
			parts = append(parts, fmt.Sprintf("%s: %s", name, why))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// failure is why a group failed, when that says more than that tasks failed.
func failure(g *v1alpha1.TaskGroup) string {
	if g == nil {
		return ""
	}
	for _, c := range g.Status.Conditions {
		if c.Type == v1alpha1.ConditionFailed && c.Status == metav1.ConditionTrue && c.Message != "too many tasks failed" {
			return c.Message
		}
	}
	return ""
}
