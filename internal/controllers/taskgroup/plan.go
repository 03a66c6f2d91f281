package taskgroup

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/demand"
	"k8s4r.io/k8s4r/internal/controllers/expect"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// Config is how the controller goes about its work.
type Config struct {
	// Window is how many Tasks of a group exist at a time without having
	// ended. 0 means 500.
	Window int
	// LookAhead is how many replicas are created that have no robot, so that
	// people see what waits. 0 means 8.
	LookAhead int
	// Tick is the least time between two writes of a status that only count.
	// 0 means 250ms.
	Tick time.Duration
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.Window == 0 {
		c.Window = 500
	}
	if c.LookAhead == 0 {
		c.LookAhead = 8
	}
	if c.Tick == 0 {
		c.Tick = 250 * time.Millisecond
	}
	return c
}

// patience is how long a group whose replicas find robots waits before it
// creates some without: a Task that is created bound costs a write less.
const patience = time.Second

// World is all that a decision about one group depends on.
type World struct {
	Group *v1alpha1.TaskGroup
	// Job that the group belongs to. Nil: it is gone.
	Job *v1alpha1.Job
	// Tasks that exist, by state.
	Tasks lifecycle.Counts
	// Creating is how many more were created and do not show yet.
	Creating int
	// Idle is how many of them wait without a robot.
	Idle int
	// Gaps are replicas that were begun and lack tasks.
	Gaps []Replica
	// Next is the first index that was never begun.
	Next int
	// Failing are robots on which as many tasks of the group failed as the job
	// allows, sorted.
	Failing []string
	// Excused is how many tasks have failed for good on robots that are blocked:
	// they are about to be tried again.
	Excused int
	// ToPutBack is how many tasks have yet to follow the job's requeue.
	ToPutBack int
	// Refused tells that seats were asked for and no more have been found
	// since.
	Refused bool
	// Denied is what the API server says against the group's Tasks. Empty:
	// nothing.
	Denied string
	// RetryAt is when to try again to create what was denied.
	RetryAt time.Time
	// LastBound is when replicas were last created with a robot.
	LastBound time.Time
	// LastStatus is when the status was last written.
	LastStatus time.Time
	// TooLarge is a sentence about a task that no message can carry.
	TooLarge string
	// Revisions are what the group's Tasks are to be, by the name of the task.
	Revisions map[string]string
	// Members are the Tasks that need a closer look, in the order of their
	// replicas. Of a system job all do. Else they are those of an older definition
	// that have not ended, those that were ever made to leave their robot, and
	// those of replicas that are not wanted any more.
	Members []Member
	// Fleet are the robots that match a system job, by name. Nil: it is none.
	Fleet map[string]Fit
}

// Member is one Task of the group.
type Member struct {
	Name string
	// Task by its name in the group.
	Task string
	// Index of its replica.
	Index int
	State lifecycle.TaskState
	// Robot that it is bound to. Empty: none.
	Robot string
	// Attempt that counts.
	Attempt int32
	// Evict is the last attempt that was to leave its robot. 0: none.
	Evict int32
	// Original is an attempt on a lost robot that may count again. 0: none.
	Original int32
	// Outdated tells that it is of an older definition.
	Outdated bool
	// Since is when the attempt was first seen to run. Zero: it does not run.
	Since time.Time
}

// Replica is what is missing of one replica.
type Replica struct {
	Index int
	Tasks []*v1alpha1.TaskDefinition
	// Robot that it belongs to. Empty: any.
	Robot string
}

// Revision gives a Task the present definition.
type Revision struct {
	Name string
	// Forget that it was ever made to leave its robot: that was for another
	// rollover, which has ended.
	Forget bool
}

// Steps is what to do, and when to look again.
type Steps struct {
	// Ask for robots for these, and create those that get one.
	Ask []Replica
	// Complete are replicas that were begun and lack tasks. Those are created
	// without a robot, because only the scheduler knows where the rest is. Those of
	// a system job are created on their robot.
	Complete []Replica
	// Idle is how many of those that get none are created all the same.
	Idle int
	// Withdraw takes back what was asked for.
	Withdraw bool
	// Revise are Tasks that are given the present definition.
	Revise []Revision
	// Evict are the Tasks that are to leave their robots.
	Evict []Member
	// Delete are the names of Tasks that are not wanted any more.
	Delete []string
	// Rollover is the reason of an event: the rollover has begun, or has ended.
	// Empty: neither.
	Rollover string
	// Status to write. Nil: as it is.
	Status *v1alpha1.TaskGroupStatus
	// WakeAt is when to look again. Zero: a watch will wake us.
	WakeAt time.Time
	// Changes of the state, in order, for people.
	Changes []progress.Change
	// Blocked are robots that the group leaves alone from now on.
	Blocked []string
	// Why has one line for each decision.
	Why []string
}

// Plan decides what follows for one group.
func Plan(now time.Time, c Config, w World) Steps {
	p := &plan{now: now, Config: c, World: w}
	if w.Job == nil || w.Job.DeletionTimestamp != nil || w.Group.DeletionTimestamp != nil || p.over() {
		p.out.Withdraw = true
		return p.out
	}
	if w.Creating > 0 {
		// Of a Task that was deleted while the watch was cut off no word comes.
		p.wake(now.Add(expect.Lifetime))
	}
	p.divide()
	p.grow()
	p.leave()
	p.roll()
	p.account()
	return p.out
}

// plan is a decision in the making.
type plan struct {
	World
	Config
	now time.Time
	out Steps
	// staying and leaving are the Members.
	staying, leaving []Member
	// seats are the replicas of a system job, by robot.
	seats    map[string]int
	rollover rollover
}

// over tells whether the group has ended and so have its tasks, and nothing is
// left to be done about it. One that was put back all the same, or is about to be,
// opens it again: if nobody looked, it would not be counted, and its job would end
// without it. A system job keeps its last word: robots come and go after it.
func (p *plan) over() bool {
	s := p.Group.Status
	left := !p.system() && slices.ContainsFunc(p.Members, func(m Member) bool { return m.Index >= p.count() })
	return s.CompletedAt != nil && p.requeue() == nil && !p.changed() && !left &&
		p.Tasks.Terminal() == p.Tasks.Total && p.Excused == 0
}

// changed tells whether this is the first look at what the group asks for now.
func (p *plan) changed() bool { return p.Group.Status.ObservedGeneration != p.Group.Generation }

// system tells whether the group has a replica on each robot that matches.
func (w *World) system() bool { return w.Job != nil && w.Job.Spec.Type == v1alpha1.JobTypeSystem }

// kept tells whether its tasks are kept running.
func (w *World) kept() bool { return w.Job != nil && v1alpha1.KeptRunning(w.Job.Spec.Type) }

func (p *plan) wake(at time.Time) {
	if p.out.WakeAt.IsZero() || at.Before(p.out.WakeAt) {
		p.out.WakeAt = at
	}
}

func (p *plan) jobState() lifecycle.JobState { return lifecycle.JobState(p.Job.Status.State) }

func (w *World) jobStarts() bool { return lifecycle.JobState(w.Job.Status.State).Starts() }

// count is the number of replicas.
func (p *plan) count() int {
	if p.system() {
		return p.covered()
	}
	return demand.Count(p.Group)
}

// end is the index after the last replica that may be created.
func (p *plan) end() int {
	if from := p.Group.Status.CanceledFrom; from != nil {
		return min(int(*from), p.count())
	}
	return p.count()
}

// total is the number of tasks.
func (p *plan) total() int { return p.count() * p.Group.Spec.Size() }

// grow decides which replicas to create.
func (p *plan) grow() {
	if !progress.Starts(p.Job) || p.TooLarge != "" {
		p.out.Withdraw = true
		return
	}
	if p.now.Before(p.RetryAt) {
		p.wake(p.RetryAt)
		return
	}
	if p.system() {
		p.cover()
		return
	}
	if p.changed() && p.Group.Status.ObservedGeneration != 0 {
		p.out.Withdraw = true // what it asked for it is no more
	}
	var want []Replica
	for _, r := range p.missing() {
		if len(r.Tasks) < p.Group.Spec.Size() {
			p.out.Complete = append(p.out.Complete, r)
		} else {
			want = append(want, r)
		}
	}
	idle := p.lookAhead(len(want))
	if len(want) == 0 || p.Refused && idle == 0 {
		return
	}
	p.out.Ask, p.out.Idle = want, idle
}

// maxAsk bounds what is asked for and created in one go. Admission refuses a
// gang that is larger.
const maxAsk = 128

// missing are the replicas that may exist now and do not, in order.
func (p *plan) missing() []Replica {
	live := p.Tasks.Total - p.Tasks.Terminal() + p.Creating
	room := max((p.Window-live)/p.Group.Spec.Size(), 0)
	if live == 0 {
		room = max(room, 1) // a replica larger than the window goes alone
	}
	if p.Group.Spec.Gang || p.kept() {
		// A gang that is asked for in parts would never find robots, and what is
		// kept running never makes room for the rest.
		room = maxAsk
	}
	room = min(room, maxAsk)
	want := p.Gaps[:min(room, len(p.Gaps))]
	for i := p.Next; i < p.end() && len(want) < room; i++ {
		want = append(want, Replica{Index: i, Tasks: p.Group.Spec.Definitions()})
	}
	return want
}

// lookAhead is how many replicas to create without a robot: none while
// replicas find robots anyway.
func (p *plan) lookAhead(missing int) int {
	n := min(p.LookAhead-p.Idle, missing)
	if p.Group.Spec.Gang {
		n = missing // the rest would wait for those that are not there
	}
	if n <= 0 {
		return 0
	}
	if ready := p.LastBound.Add(patience); p.now.Before(ready) {
		p.wake(ready)
		return 0
	}
	return n
}

// counts are all tasks of the group, those not created included, of which some
// may be canceled for good. One that is being created may yet run, so nothing
// has become of it.
func (p *plan) counts(canceledFrom *int32) lifecycle.Counts {
	c := lifecycle.Counts{Total: p.total(), Open: p.kept()}
	for state, n := range p.Tasks.In {
		c.AddN(state, n)
	}
	for _, m := range p.leaving {
		c.AddN(m.State, -1)
	}
	if p.Excused > 0 {
		c.AddN(lifecycle.TaskFailed, -p.Excused)
	}
	absent := max(c.Total-(p.Tasks.Total-len(p.leaving))-p.Creating, 0)
	switch {
	case p.TooLarge != "":
		c.AddN(lifecycle.TaskFailed, absent)
	case p.jobState().Stops():
		c.AddN(lifecycle.TaskCanceled, absent)
	case canceledFrom != nil:
		never := (p.count() - int(*canceledFrom)) * p.Group.Spec.Size()
		c.AddN(lifecycle.TaskCanceled, min(max(never, 0), absent))
	}
	return c
}

// account decides what the status says, and whether it is worth a write now.
func (p *plan) account() {
	if p.Tasks.Total == 0 && len(p.out.Ask)+len(p.out.Complete) > 0 && p.Denied == "" {
		return // what is about to be created will show, and then there is more to say
	}
	s := p.Group.Status.DeepCopy()
	s.CanceledFrom = p.canceledFrom()
	counts := p.counts(s.CanceledFrom)
	s.TaskCounts = progress.Write(counts)
	s.CreatedReplicas = p.created()
	changed := p.changed()
	s.ObservedGeneration, s.Revisions = p.Group.Generation, p.Revisions
	changed = p.report(s) || changed
	changed = p.block(s) || changed
	changed = p.putBack(s, counts) || changed
	changed = p.reopen(s, counts) || changed
	changed = p.advance(s, counts) || changed
	changed = p.complain(s) || changed
	changed = p.date(s, counts) || changed
	if equality.Semantic.DeepEqual(*s, p.Group.Status) {
		return
	}
	if ready := p.LastStatus.Add(p.Tick); !changed && p.now.Before(ready) {
		p.wake(ready)
		return
	}
	p.out.Status = s
}

// date dates the start and the end of the group, and tells whether there was one.
func (p *plan) date(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) (changed bool) {
	at := metav1.NewMicroTime(p.now)
	if s.StartedAt == nil && progress.Started(counts) {
		s.StartedAt, changed = &at, true
	}
	if s.CompletedAt == nil && progress.Ended(lifecycle.JobState(s.State), counts) {
		s.CompletedAt, changed = &at, true
	}
	return changed
}

// created is how many replicas exist or existed.
func (p *plan) created() int32 {
	if p.system() {
		return int32(len(p.seats))
	}
	return min(max(p.Group.Status.CreatedReplicas, int32(p.Next)), int32(p.count()))
}

// What the description of a group begins with that may not create its Tasks, or
// cannot change them.
const (
	deniedIs   = "Cannot create tasks: "
	tooLargeIs = "Cannot change its tasks: "
)

// complain says in the description that Tasks are denied, while they are, and
// tells whether that is news.
func (p *plan) complain(s *v1alpha1.TaskGroupStatus) bool {
	said := strings.HasPrefix(s.StatusDescription, deniedIs) || strings.HasPrefix(s.StatusDescription, tooLargeIs)
	switch {
	case lifecycle.JobState(s.State).Terminal():
	case p.Denied != "":
		s.StatusDescription = deniedIs + p.Denied
	case p.TooLarge != "":
		s.StatusDescription = tooLargeIs + p.TooLarge
	case said:
		s.StatusDescription = progress.Change{To: lifecycle.JobState(s.State), Why: "its tasks are created again"}.Describe()
	}
	return s.StatusDescription != p.Group.Status.StatusDescription
}

// block adds the robots that have failed too many tasks, and tells whether that
// is news. One that is blocked stays so, even when its tasks are put back.
func (p *plan) block(s *v1alpha1.TaskGroupStatus) bool {
	before := len(s.BlockedRobots)
	for _, robot := range p.Failing {
		if !slices.Contains(s.BlockedRobots, robot) && len(s.BlockedRobots) < maxBlocked {
			s.BlockedRobots = append(s.BlockedRobots, robot)
			p.out.Blocked = append(p.out.Blocked, robot)
			p.out.Why = append(p.out.Why, "block robot "+robot+": it failed too many tasks of the group")
		}
	}
	if len(s.BlockedRobots) == before {
		return false
	}
	if lifecycle.JobState(s.State) == lifecycle.JobFailed && p.Excused > 0 {
		s.CompletedAt = nil
		p.become(s, progress.Change{To: lifecycle.JobPending, Why: "its tasks that failed on a blocked robot are tried again"})
	}
	return true
}

// maxBlocked bounds the list, as the kind does.
const maxBlocked = 1024

// requeue is the job's wish that the group has yet to follow. Nil: none.
func (p *plan) requeue() *v1alpha1.RequeueStatus {
	if p.Job == nil {
		return nil
	}
	return progress.Requeueing(p.Job, p.Group)
}

// canceledFrom is the first of the replicas that were canceled before they were
// created. A requeue of some tasks of a job that was called off must not start
// them: nobody asked for them, and nobody could name them. One of the whole job
// does.
func (p *plan) canceledFrom() *int32 {
	before, r := p.Group.Status.CanceledFrom, p.requeue()
	switch {
	case p.system():
		return nil // robots come and go, so no replica is meant for good
	case r == nil:
		return before
	case progress.OfAll(r):
		return nil
	case before == nil && lifecycle.JobState(r.From).Stops():
		from := max(p.Group.Status.CreatedReplicas, int32(p.Next))
		return &from
	}
	return before
}

// putBack takes in that all tasks have followed the job's requeue, and opens
// the group again if that leaves it something to do.
func (p *plan) putBack(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	r := p.requeue()
	if r == nil || p.ToPutBack > 0 {
		return false
	}
	s.ObservedRequeue = r.Generation
	if progress.Forgives(r) {
		s.BlockedRobots = nil
	}
	if (counts.Terminal() < counts.Total || counts.Open) && s.State != string(lifecycle.JobPending) {
		s.StartedAt, s.CompletedAt = nil, nil
		p.become(s, progress.Change{To: lifecycle.JobPending, Why: "the job is requeued"})
	}
	return true
}

// reopen opens a group that had ended before one of its tasks was put back, or
// before its job asked for more of it, and tells whether it did. Until all tasks have followed a requeue it leaves the
// group to that.
func (p *plan) reopen(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	if s.CompletedAt == nil || p.requeue() != nil || counts.Terminal() == counts.Total {
		return false
	}
	s.CompletedAt = nil
	why := "tasks of it were put back"
	if p.changed() {
		why = "its job asks for more of it"
	}
	p.become(s, progress.Change{To: lifecycle.JobPending, Why: why})
	return true
}

// advance brings the state up to the counts, and tells whether it changed.
func (p *plan) advance(s *v1alpha1.TaskGroupStatus, counts lifecycle.Counts) bool {
	if s.State == "" {
		s.State = string(lifecycle.JobPending)
	}
	for {
		from := lifecycle.JobState(s.State)
		to, why := lifecycle.GroupAfterTasks(from, p.jobState(), counts, progress.MaxFailedPercent(p.Job))
		if to == from {
			return s.State != p.Group.Status.State
		}
		if p.TooLarge != "" && to.Terminal() {
			why = p.TooLarge
		}
		p.become(s, progress.Change{To: to, Why: why})
	}
}

func (p *plan) become(s *v1alpha1.TaskGroupStatus, c progress.Change) {
	s.State, s.StatusDescription = string(c.To), c.Describe()
	progress.Mark(&s.Conditions, p.now, p.Group.Generation, c)
	p.out.Changes = append(p.out.Changes, c)
	p.out.Why = append(p.out.Why, s.StatusDescription)
}
