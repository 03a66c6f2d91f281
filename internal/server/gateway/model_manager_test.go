package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/robot"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
	"k8s4r.io/k8s4r/internal/core/taskstate"
)

// planJob runs the job controller once.
func (m *model) planJob() {
	seen := m.cache.job
	if !m.api || seen == nil {
		return
	}
	actions := job.Plan(m.now, time.Millisecond, job.Input{Job: seen.DeepCopy(), Groups: m.cache.groups, Creating: m.groupsBeingCreated()})
	for _, g := range actions.Create {
		if m.managerCrashes("create " + g.Name) {
			return
		}
		g.UID = types.UID("uid-" + g.Name)
		m.storeGroup(g)
	}
	if actions.Status != nil && m.job.ResourceVersion == seen.ResourceVersion {
		m.record("job: %s -> %s", seen.Status.State, actions.Status.State)
		next := seen.DeepCopy()
		next.Status = *actions.Status
		m.storeJob(next)
	}
}

// groupsBeingCreated returns the names of the groups that the cache does not show yet.
func (m *model) groupsBeingCreated() map[string]bool {
	names := map[string]bool{}
	for name, g := range m.groups {
		if m.cache.groups[name] == nil {
			names[g.Name] = true
		}
	}
	return names
}

// planGroup runs the taskgroup controller once.
func (m *model) planGroup(seen *robotv1.TaskGroup) {
	if !m.api {
		return
	}
	actions := taskgroup.Plan(m.now, taskgroup.Config{}.WithDefaults(), m.groupInput(seen))
	for _, r := range slices.Concat(actions.Complete, actions.Reserve) {
		for _, def := range r.Tasks {
			if m.managerCrashes("create a task of replica " + strconv.Itoa(r.Index)) {
				return
			}
			m.createTask(seen, r.Index, def)
		}
	}
	if !m.applyArrayActions(seen, actions) {
		return
	}
	if actions.Status != nil && m.groups[seen.Spec.GroupName].ResourceVersion == seen.ResourceVersion {
		next := seen.DeepCopy()
		next.Status = *actions.Status
		m.storeGroup(next)
	}
}

// groupInput returns what the taskgroup controller observes. Before it answers a requeue, it reads past
// the cache.
func (m *model) groupInput(g *robotv1.TaskGroup) taskgroup.Input {
	w := m.groupInputFrom(m.cache.tasks, g)
	if taskcounts.PendingRequeue(w.Job, g) != nil && w.RequeuesLeft == 0 {
		return m.groupInputFrom(m.tasks, g)
	}
	return w
}

func (m *model) groupInputFrom(tasks map[string]*robotv1.Task, g *robotv1.TaskGroup) taskgroup.Input {
	w := taskgroup.Input{Group: g.DeepCopy(), Job: m.cache.job}
	jobState := lifecycle.JobState(w.Job.Status.State)
	failures := map[string]int{}
	for _, name := range m.taskNames() {
		if index := replicaIndex(m.tasks[name]); index < m.replicaCount() {
			w.NextIndex = max(w.NextIndex, index+1)
		}
		t := tasks[name]
		if t == nil {
			w.CreatingTasks++
			continue
		}
		state := lifecycle.TaskState(t.Status.State).OrPending()
		w.Tasks.Total++
		w.Tasks.AddTasks(state, 1)
		if t.Status.UnconfirmedStop != nil || m.broken == keepsCount && g.Status.UnconfirmedStops > 0 {
			w.Tasks.UnconfirmedStops++
		}
		if jobState.MayStart(state) {
			w.UnstoppedTasks++
		}
		for _, r := range t.Status.FailedRobots {
			failures[r]++
		}
		hasNoFailures := len(t.Status.FailedRobots) == 0
		if r := taskcounts.PendingRequeue(w.Job, g); r != nil && (taskcounts.ShouldRequeue(r, name, requeueState(t)) || taskcounts.ClearsFailures(r) && !hasNoFailures) {
			w.RequeuesLeft++
		}
	}
	for r, n := range failures {
		if n >= 3 {
			w.FailingRobots = append(w.FailingRobots, r)
		}
	}
	slices.Sort(w.FailingRobots)
	for i := range w.NextIndex {
		r := taskgroup.Replica{Index: i}
		for _, def := range g.Spec.TaskDefinitions() {
			if m.tasks[taskName(i, def.Name)] == nil {
				r.Tasks = append(r.Tasks, def)
			}
		}
		if len(r.Tasks) > 0 {
			w.IncompleteReplicas = append(w.IncompleteReplicas, r)
		}
	}
	m.observeArray(&w, tasks)
	if blocked := slices.Concat(w.FailingRobots, g.Status.BlockedRobots); jobState.StartsTasks() {
		w.FailedOnBlocked, w.RangesOnBlocked = m.countFailedOnBlocked(blocked), m.rangesOn(blocked)
	}
	return w
}

func (m *model) countFailedOnBlocked(blocked []string) (n int) {
	for _, t := range m.cache.tasks {
		failed := lifecycle.TaskState(t.Status.State) == lifecycle.TaskFailed
		if failed && slices.ContainsFunc(t.Status.FailedRobots, func(r string) bool { return slices.Contains(blocked, r) }) {
			n += max(array.Left(t).Len(), 1)
		}
	}
	return n
}

func taskName(index int, task string) string { return fmt.Sprintf("j-g-%d-%s", index, task) }

func replicaIndex(t *robotv1.Task) int {
	n, _ := strconv.Atoi(t.Labels[robotv1.LabelTaskIndex])
	return n
}

func (m *model) createTask(g *robotv1.TaskGroup, index int, def *robotv1.TaskDefinition) {
	name := taskName(index, def.Name)
	if m.tasks[name] != nil {
		return
	}
	kind := ""
	if def.Daemon {
		kind = robotv1.JobTypeService
	}
	t := &robotv1.Task{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: m.newUID(name), CreationTimestamp: metav1.NewTime(m.now),
			Labels:          map[string]string{robotv1.LabelTaskIndex: strconv.Itoa(index)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, robotv1.GroupVersion.WithKind("TaskGroup"))},
		},
		Spec: robotv1.TaskSpec{JobName: m.job.Name, TaskGroupName: g.Name, TaskDefinition: *def, RestartPolicy: g.Spec.RestartPolicy, Type: kind, ExtraResources: apiconv.ExtraResources(&g.Spec.TaskGroupTemplate)[def.Name]},
	}
	if r, ok := m.ranges(); ok {
		t.Spec.Array = r.Range(index)
	}
	m.storeTask(t)
}

// draft is what the task controller has decided and not written yet.
type draft struct {
	seen    *robotv1.Task
	actions task.Actions
}

// planTaskFromCache runs the planner of the task controller with what the manager's cache has.
func (m *model) planTaskFromCache(name string) draft {
	t := m.cache.tasks[name]
	w := task.Input{Task: t.DeepCopy(), Job: m.cache.job, Group: m.cache.groups["g"], MayExplain: true, RecoveryTime: m.offlineAfter / 5}
	state := lifecycle.TaskState(t.Status.State).OrPending()
	at := t.Spec.TargetRobot
	if state.IsActive() {
		at = t.CurrentRobot()
		w.EvictionReason, w.EvictionWaitsFor = m.evictionOf(t, at)
	}
	if state.IsPlaceable() {
		w.ReservedRobot, w.Rejected = m.placeTask(t)
	}
	if state.IsPlaceable() || state == lifecycle.TaskExited {
		for _, a := range t.Status.Attempts {
			if a.FinishedAt == nil && m.job.Spec.Disconnect.StopOnRobotAfter != nil {
				w.OtherAttempts = append(w.OtherAttempts, task.OtherAttempt{Attempt: a.Attempt, Name: a.Robot, Robot: m.robots[a.Robot], Contact: m.observeContact(a.Robot)})
			}
		}
	}
	w.OpenAttempts = m.openAttempts(t)
	if w.ReservedRobot != "" {
		at = w.ReservedRobot
	}
	for _, s := range m.siblingsIn(m.cache.tasks, t) {
		w.Siblings = append(w.Siblings, *s.DeepCopy())
		if state.IsTerminal() && lifecycle.TaskState(s.Status.State).IsPlaceable() && w.PendingReplicaRobot == "" {
			w.PendingReplicaRobot, _ = m.placeTask(s)
		}
	}
	w.Robot, w.OnlineSince = m.robots[at], m.lastOnlineSince
	if w.Robot != nil {
		w.Contact, w.Ages = m.observeContact(at), m.contacts.ObserveTask(t)
	}
	w.HasCapableRobot = m.hasCapableRobot(t)
	if o := t.Status.FindAttempt(t.Status.LostAttempt); o != nil {
		w.LostAttemptRobot = m.robots[o.Robot]
		w.BetterRobot = m.pick("the better robot", o.Robot, t.CurrentRobot())
	}
	d := draft{seen: t}
	m.planRestarts(w.Task, func() *robotv1.TaskStatus {
		d.actions = task.Plan(m.now, w)
		m.breakStops(&t.Status, d.actions.Status)
		return d.actions.Status
	})
	return d
}

// evictionReason returns why a Task must leave its robot, or the empty string.
func (m *model) evictionReason(t *robotv1.Task, at string) string {
	switch r := m.robots[at]; {
	case t.Spec.EvictAttempt > 0 && t.Spec.EvictAttempt == t.Status.Attempt:
		return "an operator has requested it"
	case r != nil && r.Spec.Drain:
		return "its robot is drained"
	}
	for _, s := range m.siblings(t) {
		switch {
		case !lifecycle.TaskState(s.Status.State).OrPending().IsPlaceable():
		case slices.Contains(s.Status.FailedRobots, at):
			return "a task of its replica has failed there"
		case m.mustLeaveBlocked(s, at):
			return "its robot is blocked, and a task of its replica waits for another one"
		}
	}
	return ""
}

// mustLeaveBlocked reports whether a waiting task cannot join its replica on a robot, because that is
// blocked for their group, but could run on another one.
func (m *model) mustLeaveBlocked(t *robotv1.Task, robot string) bool {
	isElsewhere := func(s *robotv1.Task) bool {
		return lifecycle.TaskState(s.Status.State).IsActive() && s.CurrentRobot() != robot
	}
	isSplit := slices.ContainsFunc(m.siblings(t), isElsewhere)
	return slices.Contains(m.cache.groups["g"].Status.BlockedRobots, robot) && !isSplit &&
		taskstate.LostAttemptRobot(t) != robot && m.hasCapableRobot(t)
}

// siblings returns the other tasks of a replica whose tasks wait for each other.
func (m *model) siblings(t *robotv1.Task) (all []*robotv1.Task) { return m.siblingsIn(m.tasks, t) }

func (m *model) siblingsIn(tasks map[string]*robotv1.Task, t *robotv1.Task) (all []*robotv1.Task) {
	if !m.groups["g"].Spec.HasStages() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		if s := tasks[name]; s.Name != t.Name && replicaIndex(s) == replicaIndex(t) {
			all = append(all, s)
		}
	}
	return all
}

// constrainToSiblings places a task on, or else near, the robot of the other tasks of its replica that run,
// wait or have completed.
func (m *model) constrainToSiblings(t *robotv1.Task, d *placement.Demand) {
	var on []string
	for _, s := range m.siblings(t) {
		switch state := lifecycle.TaskState(s.Status.State).OrPending(); {
		case state.IsActive():
			on = append(on, s.CurrentRobot())
		case state.IsPlaceable():
			d.Failed = append(d.Failed, s.Status.FailedRobots...)
		case state == lifecycle.TaskCompleted && s.Spec.ExtraResources != nil:
			d.Near = append(d.Near, s.CurrentRobot())
		}
	}
	slices.Sort(on)
	switch on = slices.Compact(on); {
	case len(on) == 1:
		d.Robot = on[0]
	case len(on) > 1:
		d.Near = on
	case m.replicaRobots[replicaIndex(t)] != "":
		d.Near = []string{m.replicaRobots[replicaIndex(t)]}
	}
}

// placeTask finds a robot for one Task.
func (m *model) placeTask(t *robotv1.Task) (robot string, rejected *placement.Diagnosis) {
	d := placement.Demand{Tasks: []placement.Task{apiconv.TaskOf(t)}, Failed: slices.Clone(t.Status.FailedRobots)}
	if o := t.Status.FindAttempt(t.Status.LostAttempt); o != nil {
		d.Failed = append(d.Failed, o.Robot)
	}
	d.Rules = &placement.Rules{Blocked: m.cache.groups["g"].Status.BlockedRobots}
	m.constrainToSiblings(t, &d)
	decided := placement.Decide(placement.Snapshot{Robots: m.placementRobots(), Demands: []placement.Demand{d}})
	for _, b := range decided.Bind {
		m.replicaRobots[replicaIndex(t)] = b.Robot
		return b.Robot, nil
	}
	return "", decided.Rejected[d.Name()]
}

func (m *model) hasCapableRobot(t *robotv1.Task) bool {
	failed := slices.Clone(t.Status.FailedRobots)
	if lifecycle.TaskState(t.Status.State) == lifecycle.TaskExited {
		failed = append(failed, t.CurrentRobot())
	}
	for _, s := range m.siblings(t) {
		for _, robot := range s.Status.FailedRobots {
			state := lifecycle.TaskState(s.Status.State)
			prepared := state == lifecycle.TaskCompleted && s.Spec.ExtraResources != nil && robot != s.CurrentRobot()
			if !state.IsTerminal() || prepared {
				failed = append(failed, robot)
			}
		}
	}
	d := placement.Demand{
		Tasks: []placement.Task{apiconv.TaskOf(t)}, Failed: failed,
		Rules: &placement.Rules{Blocked: m.cache.groups["g"].Status.BlockedRobots},
	}
	return placement.CanAnyRun(&d, m.placementRobots())
}

func (m *model) placementRobots() (all []placement.Robot) {
	for _, id := range m.robotIDs() {
		r := apiconv.RobotFrom(m.robots[id])
		for _, t := range m.tasks {
			if lifecycle.TaskState(t.Status.State).IsActive() && t.CurrentRobot() == id {
				r.Held.Tasks++
			}
		}
		all = append(all, r)
	}
	return all
}

// applyDraft writes a draft, each write on the result of the previous one. The manager may crash
// between any two.
func (m *model) applyDraft(d draft) {
	t := d.seen
	bindTask := func(to *task.RobotBinding) bool {
		if to == nil {
			return true
		}
		next := t.DeepCopy()
		next.Spec.TargetRobot = to.TargetRobot
		t, _ = m.writeTask(t, next)
		return t != nil && !m.managerCrashes("write more of "+next.Name)
	}
	if d.actions.RejectedSignal != "" {
		m.t.Fatalf("%s: the manager sent %s in state %s", t.Name, d.actions.RejectedSignal, t.Status.State)
	}
	if !bindTask(d.actions.Bind) {
		return
	}
	if d.actions.Status != nil {
		next := t.DeepCopy()
		next.Status = *d.actions.Status
		for _, why := range d.actions.Reasons {
			m.record("%s %s", t.Name, why)
		}
		if t, _ = m.writeTask(t, next); t == nil || m.managerCrashes("write more of "+next.Name) {
			return
		}
	}
	if bindTask(d.actions.Rebind) && d.actions.PauseAttempt > 0 {
		m.pauseAttempt(t, d.actions.PauseAttempt)
	}
	if t != nil && d.actions.WithdrawEviction {
		next := t.DeepCopy()
		next.Spec.EvictAttempt, next.Spec.EvictionWaitsFor = 0, ""
		m.writeTask(t, next)
	}
}

// planRobot runs the robot controller once.
func (m *model) planRobot(id string) {
	if !m.api {
		return
	}
	actions := robot.Plan(m.now, robot.Config{OfflineAfter: m.offlineAfter}.WithDefaults(), robot.Input{Robot: m.robots[id].DeepCopy(), Silence: m.observeSilence(id), Robots: len(m.robots)})
	m.checkOffline(id, m.robots[id].Status.Phase, actions)
	if actions.Status != nil {
		was := m.robots[id].Status.Phase
		m.writeRobot(id, *actions.Status)
		if now := m.robots[id].Status.Phase; now != was {
			m.record("robot %s is %s", id, now)
		}
	}
	m.lastOnlineSince = m.onlineSince()
}

// onlineSince returns the time since when a robot has been connected.
func (m *model) onlineSince() time.Time {
	for _, r := range m.robots {
		if lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOnline {
			if m.lastOnlineSince.IsZero() {
				return m.now
			}
			return m.lastOnlineSince
		}
	}
	return time.Time{}
}
