package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// reservationTTL is how long a robot is reserved for a Task that does not appear.
const reservationTTL = time.Minute

// Scheduler reserves robots in one loop, for existing Tasks that wait and for TaskGroups that
// request robots before they create their Tasks. A cycle serves both by rank, so neither is
// preferred.
type Scheduler struct {
	// Now is the clock.
	Now func() time.Time
	// Log receives a line for each reservation that expired.
	Log logr.Logger

	wake   chan struct{} // buffered: requests a cycle
	synced []cache.InformerSynced

	// mu guards all fields below, and all types of this package documented as guarded by it. It is
	// never held while a function of another package blocks or calls back.
	mu    sync.Mutex
	state *clusterState
	// planners, by namespace, cache what they computed about its robots.
	planners map[string]*placement.Planner
	requests []groupRequest
	// notifyTask and notifyGroup are nil until their controllers set them.
	notifyTask, notifyGroup func(namespace, name string)
}

// groupRequest is a group that waits for the end of the next cycle.
type groupRequest struct {
	group key
	done  chan struct{}
}

// New returns a scheduler that does nothing until it is started.
func New(now func() time.Time, log logr.Logger) *Scheduler {
	return &Scheduler{
		Now: now, Log: log, wake: make(chan struct{}, 1),
		state: newClusterState(now), planners: map[string]*placement.Planner{},
	}
}

// SetupWithManager connects the scheduler to the manager's informers and starts it with the
// manager.
func (s *Scheduler) SetupWithManager(mgr ctrl.Manager) error {
	for obj, h := range map[client.Object]cache.ResourceEventHandler{
		&v1alpha1.Task{}:      s.TaskHandler(),
		&v1alpha1.TaskGroup{}: s.GroupHandler(),
		&v1alpha1.Robot{}:     s.RobotHandler(),
		&v1alpha1.Job{}:       s.JobHandler(),

		&v1alpha1.MaintenanceWindow{}: s.WindowHandler(),
	} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), obj)
		if err != nil {
			return fmt.Errorf("informer of %T: %w", obj, err)
		}
		registration, err := informer.AddEventHandler(h)
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		s.synced = append(s.synced, registration.HasSynced)
	}
	return mgr.Add(s)
}

// Start runs cycles until ctx ends. It waits for the informers first: a cycle that knew only some
// of the tasks on a robot would overbook it.
func (s *Scheduler) Start(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return nil
	}
	ticker := time.NewTicker(reservationTTL)
	defer ticker.Stop()
	timer := time.NewTimer(reservationTTL)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-ticker.C: // expires reservations
		case <-timer.C:
		}
		start := s.Now()
		s.RunCycle(start)
		s.resetTimer(timer)
		took := s.Now().Sub(start)
		cycleSeconds.Observe(took.Seconds())
		if !sleepContext(ctx, min(4*took, 250*time.Millisecond)) {
			return nil
		}
	}
}

// resetTimer sets the timer to when something changes by time alone.
func (s *Scheduler) resetTimer(timer *time.Timer) {
	s.mu.Lock()
	next := s.state.nextChange()
	s.mu.Unlock()
	if next.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(max(next.Sub(s.Now()), time.Millisecond))
}

// sleepContext sleeps for d, and returns false if ctx ends first. Start uses it to keep cycles
// below a fifth of the time; events that arrive meanwhile are served by the next cycle.
func sleepContext(ctx context.Context, d time.Duration) bool {
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

// RunCycle decides once about all waiting tasks and claims, and notifies the controllers. Tests
// call it instead of Start.
func (s *Scheduler) RunCycle(now time.Time) { s.sendNotifications(s.decide(now)) }

// decide runs a cycle and returns the objects whose controllers must be notified.
func (s *Scheduler) decide(now time.Time) notifications {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.state.expireReservations(now.Add(-reservationTTL)) {
		s.Log.Info("Reservation expired because its task was not created", "task", k)
	}
	s.state.advanceTime(now)
	n := notifications{groups: map[key]bool{}, tasks: s.state.toNotify}
	s.state.toNotify = nil
	if s.state.dirty.isSet {
		// Reservations that a cycle makes change nothing for the demands that it rejects, but
		// room that it frees does.
		freedRoom := s.placeDemandsLocked(now, &n)
		if s.state.dirty.isSet = freedRoom; freedRoom {
			s.requestCycle()
		}
	}
	waitingTasks.Set(float64(len(s.state.tasks.waiting)))
	for _, r := range s.requests {
		delete(n.groups, r.group) // ReserveRobots returns its reservations
		close(r.done)
	}
	s.requests = nil
	return n
}

// placeDemandsLocked decides on all demands, namespace by namespace, and reports whether that
// freed room.
func (s *Scheduler) placeDemandsLocked(now time.Time, n *notifications) (freedRoom bool) {
	s.state.windows.begin(now)
	s.state.preemptions.cancelUnneeded(s.state.isWaiting, s.state.isProtected)
	vacated := s.state.preemptions.vacatedRobots()
	demands := newDemandBuilder(s.state).buildDemands()
	for _, namespace := range s.state.rotateNamespaces(demands) {
		snapshot := s.state.snapshotFor(namespace, demands[namespace])
		w := &decisionWriter{clusterState: s.state, namespace: namespace, now: now, notify: n}
		if w.applyDecisions(s.plannerLocked(namespace).Decide(snapshot)) {
			freedRoom = true
		}
	}
	for _, robot := range vacated { // the namespace that it was reserved for has been served
		delete(s.state.preemptions.reservedFor, robot)
		freedRoom = true
	}
	return freedRoom
}

func (s *Scheduler) plannerLocked(namespace string) *placement.Planner {
	p := s.planners[namespace]
	if p == nil {
		p = placement.NewPlanner()
		s.planners[namespace] = p
	}
	return p
}

func (s *Scheduler) sendNotifications(n notifications) {
	if len(n.tasks)+len(n.groups) == 0 {
		return
	}
	s.mu.Lock()
	notifyTask, notifyGroup := s.notifyTask, s.notifyGroup
	s.mu.Unlock()
	for _, k := range n.tasks {
		if notifyTask != nil {
			notifyTask(k.Namespace, k.Name)
		}
	}
	for k := range n.groups {
		if notifyGroup != nil {
			notifyGroup(k.Namespace, k.Name)
		}
	}
}

// NotifyTasks sets the function that is called for each waiting Task with a new reservation or
// a new rejection, and for each Task that must leave its robot.
func (s *Scheduler) NotifyTasks(f func(namespace, name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifyTask = f
}

// NotifyGroups sets the function that is called for each TaskGroup for which robots were
// reserved.
func (s *Scheduler) NotifyGroups(f func(namespace, name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifyGroup = f
}

// ReserveRobots replaces the claim of a group, blocks until the end of the next cycle, and returns
// the robots that are reserved for its demands, by the demand's name. If more are reserved later,
// the function set by NotifyGroups is called. A reservation ends when its Task is observed, with
// ReleaseRobot or ForgetGroup, or after a minute. The error is that of ctx.
func (s *Scheduler) ReserveRobots(ctx context.Context, g *v1alpha1.TaskGroup, j *v1alpha1.Job, demands []placement.Demand) (map[string]placement.Robot, error) {
	k, done := keyOf(g), make(chan struct{})
	s.update(func(c *clusterState) {
		c.replaceClaim(g, j, demands)
		s.requests = append(s.requests, groupRequest{k, done})
	})
	s.requestCycle()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-done:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.reservedRobots(k, demands), nil
}

// ReleaseRobot releases the reservation of a Task that was not created.
func (s *Scheduler) ReleaseRobot(namespace, task string) {
	s.update(func(c *clusterState) { c.releaseTask(key{Namespace: namespace, Name: task}) })
}

// ForgetGroup drops the claim of a group and releases its reservations for Tasks that were not
// created.
func (s *Scheduler) ForgetGroup(namespace, group string) {
	s.update(func(c *clusterState) { c.forgetGroup(key{Namespace: namespace, Name: group}) })
}

// EnablePreemption lets Jobs with preemption preempt tasks of lower priority. The caller must evict
// the victims: the function set by NotifyTasks is called for each, and EvictionReason names the task
// that preempts it.
func (s *Scheduler) EnablePreemption() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.canPreempt = true
}

// EvictionReason returns why a Task must leave its robot. If empty, it may stay.
func (s *Scheduler) EvictionReason(task key) string {
	reason, _ := s.Eviction(task)
	return reason
}

// Eviction returns why a Task must leave its robot, and whether that is because of a task of higher priority,
// for which holds and maintenance windows count. If the reason is empty, it may stay.
func (s *Scheduler) Eviction(task key) (reason string, isPreempted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason = s.state.evictionBySibling(task); reason != "" {
		return reason, false
	}
	reason = s.state.preemption(task)
	return reason, reason != ""
}

// PendingReplicaRobot returns the robot on which other tasks of the Task's replica are about
// to start, or "".
func (s *Scheduler) PendingReplicaRobot(t *v1alpha1.Task) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.tasks.pendingRobot(taskstate.ReplicaOf(t))
}

// HasCapableRobot reports whether any robot could ever run the Task, except the failed ones and those
// that its group has blocked. Robots that are offline, unschedulable or full count. known is false
// until the informers have synced: a manager that has just started would fail tasks too early.
func (s *Scheduler) HasCapableRobot(t *v1alpha1.Task, failed []string) (capable, known bool) {
	for _, synced := range s.synced {
		if !synced() {
			return false, false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.hasCapableRobot(t, failed), true
}

// OnlineSince returns since when some robot that the namespace may use has been online. Zero
// if none is.
func (s *Scheduler) OnlineSince(namespace string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.robots.online[namespace].since
}

// BetterRobot returns the name of the robot that placement prefers of two that both run the Task,
// or "" if neither fits. Either may be nil.
func (s *Scheduler) BetterRobot(t *v1alpha1.Task, a, b *v1alpha1.Robot) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.betterRobot(t, a, b)
}

// IsBehind reports whether the Task's reservation was made for an older version of it. Its robot
// may be the one that the task has just left, or not meet its new constraints.
func (s *Scheduler) IsBehind(t *v1alpha1.Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.state.tasks.byKey[keyOf(t)]
	if e == nil || e.robot == "" || e.uid == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(e.version, t.ResourceVersion)
	return err == nil && c < 0
}

// Assignment returns the robot that is reserved for a task, or why it has none. Both are zero until
// a cycle has considered the task.
func (s *Scheduler) Assignment(task key) (robot string, rejected *placement.Diagnosis) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.state.tasks.byKey[task]; e != nil {
		return e.robot, e.diagnosis
	}
	return "", nil
}

// update calls f with the state, and requests a cycle if it may decide differently afterwards.
func (s *Scheduler) update(f func(*clusterState)) {
	s.mu.Lock()
	f(s.state)
	needsCycle := s.state.dirty.isSet
	n := notifications{tasks: s.state.toNotify}
	s.state.toNotify = nil
	s.mu.Unlock()
	s.sendNotifications(n)
	if needsCycle {
		s.requestCycle()
	}
}

// requestCycle makes Start run a cycle soon. It never blocks.
func (s *Scheduler) requestCycle() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// TaskHandler returns the handler of watch events of Tasks.
func (s *Scheduler) TaskHandler() cache.ResourceEventHandler {
	return newEventHandler(s, (*clusterState).updateTask, (*clusterState).removeTask)
}

// RobotHandler returns the handler of watch events of Robots.
func (s *Scheduler) RobotHandler() cache.ResourceEventHandler {
	return newEventHandler(s, (*clusterState).updateRobot, (*clusterState).removeRobot)
}

// JobHandler returns the handler of watch events of Jobs.
func (s *Scheduler) JobHandler() cache.ResourceEventHandler {
	return newEventHandler(s, (*clusterState).updateJob, (*clusterState).removeJob)
}

// GroupHandler returns the handler of watch events of TaskGroups.
func (s *Scheduler) GroupHandler() cache.ResourceEventHandler {
	return newEventHandler(s, (*clusterState).updateGroup, (*clusterState).removeGroup)
}

// WindowHandler returns the handler of watch events of MaintenanceWindows.
func (s *Scheduler) WindowHandler() cache.ResourceEventHandler {
	return newEventHandler(s, (*clusterState).updateWindow, (*clusterState).removeWindow)
}

// newEventHandler returns a handler that updates and removes objects of one kind.
func newEventHandler[O client.Object](s *Scheduler, update func(*clusterState, O), remove func(*clusterState, key)) cache.ResourceEventHandler {
	observe := func(obj any) { s.update(func(c *clusterState) { update(c, obj.(O)) }) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    observe,
		UpdateFunc: func(_, obj any) { observe(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if o, ok := obj.(O); ok {
				s.update(func(c *clusterState) { remove(c, keyOf(o)) })
			}
		},
	}
}
