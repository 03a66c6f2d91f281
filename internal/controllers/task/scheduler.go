package task

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/placement"
)

// Scheduler decides which robot takes which task, in one loop for all who ask:
// the Tasks that wait in the cluster, and the groups that ask for seats before
// they create theirs. A cycle serves all of them by rank, so nobody overtakes.
//
// It reads what the watch tells, never lists, and writes nothing to the API
// server.
type Scheduler struct {
	// Now is the clock.
	Now func() time.Time
	// Log takes what went wrong.
	Log    logr.Logger
	wake   chan struct{}
	synced []cache.InformerSynced

	mu     sync.Mutex
	ledger *ledger
	// planners by namespace remember what they made of its robots.
	planners map[string]*placement.Planner
	asking   []question
	// onTask and onGroup are nil until their controllers listen.
	onTask, onGroup func(namespace, name string)
}

// question is a group that waits for an answer.
type question struct {
	group    key
	answered chan struct{}
}

// seatLifetime is how long a seat is kept for a Task that does not appear.
const seatLifetime = time.Minute

// NewScheduler returns a scheduler that does nothing until it is started.
func NewScheduler(now func() time.Time, log logr.Logger) *Scheduler {
	return &Scheduler{Now: now, Log: log, wake: make(chan struct{}, 1), ledger: newLedger(now), planners: map[string]*placement.Planner{}}
}

// Start runs cycles until ctx ends, from when the watch has told all that is
// there: a cycle that knew only half of what the robots hold would overbook
// them.
func (s *Scheduler) Start(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return nil
	}
	ticker := time.NewTicker(seatLifetime)
	defer ticker.Stop()
	due := time.NewTimer(seatLifetime)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-ticker.C: // gives back seats that nobody took
		case <-due.C:
		}
		began := s.Now()
		s.tell(s.cycle(began))
		s.foresee(due)
		took := s.Now().Sub(began)
		cycleSeconds.Observe(took.Seconds())
		if !pause(ctx, min(4*took, 250*time.Millisecond)) {
			return nil
		}
	}
}

// foresee sets the timer to when time alone changes something.
func (s *Scheduler) foresee(due *time.Timer) {
	s.mu.Lock()
	at := s.ledger.next()
	s.mu.Unlock()
	if at.IsZero() {
		due.Stop()
		return
	}
	due.Reset(max(at.Sub(s.Now()), time.Millisecond))
}

// pause keeps long cycles from taking more than a fifth of the time: what
// arrives meanwhile is served by the next one.
func pause(ctx context.Context, d time.Duration) bool {
	if d < time.Millisecond {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// cycle decides on all that waits.
func (s *Scheduler) cycle(now time.Time) news {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.ledger.expire(now.Add(-seatLifetime)) {
		s.Log.Info("A task for which a robot was held never appeared", "task", k)
	}
	s.ledger.pass(now)
	n := news{groups: map[key]bool{}, tasks: s.ledger.late}
	s.ledger.late = nil
	if s.ledger.changed {
		s.ledger.changed = false
		s.ledger.pardon()
		vacated := s.ledger.vacated()
		demands := s.ledger.demands()
		for _, namespace := range s.ledger.turns(demands) {
			snapshot := s.ledger.snapshot(namespace, demands[namespace])
			s.ledger.settle(namespace, s.planner(namespace).Decide(snapshot), now, &n)
		}
		for _, robot := range vacated { // who made room there has had its turn
			delete(s.ledger.kept, robot)
			n.freed = true
		}
		// Seats that were just given change nothing for those refused.
		if s.ledger.changed = n.freed; n.freed {
			s.awake()
		}
	}
	waitingTasks.Set(float64(len(s.ledger.waiting)))
	for _, q := range s.asking {
		delete(n.groups, q.group) // it reads the seats with the answer
		close(q.answered)
	}
	s.asking = nil
	return n
}

func (s *Scheduler) planner(namespace string) *placement.Planner {
	p := s.planners[namespace]
	if p == nil {
		p = placement.NewPlanner()
		s.planners[namespace] = p
	}
	return p
}

func (s *Scheduler) tell(n news) {
	if len(n.tasks)+len(n.groups) == 0 {
		return
	}
	s.mu.Lock()
	onTask, onGroup := s.onTask, s.onGroup
	s.mu.Unlock()
	for _, k := range n.tasks {
		if onTask != nil {
			onTask(k.Namespace, k.Name)
		}
	}
	for k := range n.groups {
		if onGroup != nil {
			onGroup(k.Namespace, k.Name)
		}
	}
}

// listen takes who is told of each waiting Task with a new seat or a new
// refusal.
func (s *Scheduler) listen(onTask func(namespace, name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onTask = onTask
}

// OnGroup takes who is told of each TaskGroup for which seats were found.
func (s *Scheduler) OnGroup(f func(namespace, name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onGroup = f
}

// Bind replaces what the group of a job asks for, waits for the next cycle, and returns
// the robots that are held for those demands by the demand's name. OnGroup's
// function is called when there are more. A robot is held until the Task appears, Release,
// Forget, or a minute has passed.
func (s *Scheduler) Bind(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) (map[string]placement.Robot, error) {
	k := key{Namespace: g.Namespace, Name: g.Name}
	answered := make(chan struct{})
	s.change(func(l *ledger) {
		l.want(g, j, demands)
		s.asking = append(s.asking, question{k, answered})
	})
	s.awake()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-answered:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.seats(k, demands), nil
}

// Preempt lets Jobs with preemption push tasks of lower priority away. Whoever
// calls it makes those leave: each victim is told of like a Task with a new
// seat, and unwanted says whom it must leave for.
func (s *Scheduler) Preempt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.preempts = true
}

// unwanted is why the scheduler wants a Task to leave its robot. Empty: it may
// stay.
func (s *Scheduler) unwanted(k key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.ledger.entries[k]; e != nil && e.victimOf != "" {
		return "task " + e.victimOf + " of higher priority takes its place"
	}
	if name := s.ledger.forsakenBy(k); name != "" {
		return "task " + name + " of the same replica has failed there, and is to run elsewhere"
	}
	return ""
}

// awaited is the robot on which other tasks of a Task's replica are about to start.
// Empty: there is none.
func (s *Scheduler) awaited(t *v1alpha1.Task) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.awaited(replicaOf(t))
}

// capable tells whether any robot could ever take the Task, beside those that
// have failed it and those that its group has blocked. One that is offline,
// unschedulable or full counts. Nobody knows before the watch has told all that
// is there: a manager that had just started would fail tasks for robots that it
// has yet to hear of.
func (s *Scheduler) capable(t *v1alpha1.Task, failed []string) (capable, known bool) {
	for _, synced := range s.synced {
		if !synced() {
			return false, false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.capable(t, failed), true
}

// contactSince is since when some robot that the namespace may use has been in contact.
// Zero: none is.
func (s *Scheduler) contactSince(namespace string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.contact[namespace].since
}

// better is the one of two robots, both of which run the Task, that placement
// would choose. Empty: neither.
func (s *Scheduler) better(t *v1alpha1.Task, a, b string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.better(t, a, b)
}

// Release gives back the seat of a Task that was not created after all.
func (s *Scheduler) Release(namespace, task string) {
	s.change(func(l *ledger) { l.release(key{Namespace: namespace, Name: task}) })
}

// Forget drops all that a group that is gone asked for.
func (s *Scheduler) Forget(namespace, group string) {
	s.change(func(l *ledger) { l.forget(key{Namespace: namespace, Name: group}) })
}

// behind tells whether the seat of a Task was given to an older version of it. It
// may be the one that it comes back from, or one that does not meet its new
// constraints: a task was sent to the robot that was being drained.
func (s *Scheduler) behind(t *v1alpha1.Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.ledger.entries[key{Namespace: t.Namespace, Name: t.Name}]
	if e == nil || e.seat == "" || e.uid == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(e.version, t.ResourceVersion)
	return err == nil && c < 0
}

// seat is the robot that a waiting Task may go to, or why it has none. Both
// are empty before the first cycle that knew the task.
func (s *Scheduler) seat(k key) (robot, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.ledger.entries[k]; e != nil {
		return e.seat, e.told
	}
	return "", ""
}

func (s *Scheduler) change(f func(*ledger)) {
	s.mu.Lock()
	f(s.ledger)
	changed := s.ledger.changed
	n := news{tasks: s.ledger.late}
	s.ledger.late = nil
	s.mu.Unlock()
	s.tell(n)
	if changed {
		s.awake()
	}
}

func (s *Scheduler) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Handlers feed the scheduler from the informers of Tasks, Robots and Jobs.
func (s *Scheduler) taskHandler() cache.ResourceEventHandler {
	return feed(s, (*ledger).seeTask, (*ledger).leave)
}

func (s *Scheduler) robotHandler() cache.ResourceEventHandler {
	return feed(s, (*ledger).seeRobot, (*ledger).dropRobot)
}

func (s *Scheduler) jobHandler() cache.ResourceEventHandler {
	return feed(s, (*ledger).seeJob, (*ledger).dropJob)
}

func (s *Scheduler) groupHandler() cache.ResourceEventHandler {
	return feed(s, (*ledger).seeGroup, (*ledger).dropGroup)
}

type object interface {
	*v1alpha1.Task | *v1alpha1.Robot | *v1alpha1.Job | *v1alpha1.TaskGroup
	GetNamespace() string
	GetName() string
}

// feed makes a handler that tells the ledger what it sees.
func feed[O object](s *Scheduler, see func(*ledger, O), drop func(*ledger, key)) cache.ResourceEventHandler {
	saw := func(obj any) { s.change(func(l *ledger) { see(l, obj.(O)) }) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    saw,
		UpdateFunc: func(_, obj any) { saw(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if o, ok := obj.(O); ok {
				s.change(func(l *ledger) { drop(l, key{Namespace: o.GetNamespace(), Name: o.GetName()}) })
			}
		},
	}
}
