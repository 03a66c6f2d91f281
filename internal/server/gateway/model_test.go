package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/controllers/task"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// model is the whole system in one thread: the planners of the manager, the task lists, dispatches
// and report rules of the server, and robots that follow the rules of the agent. The network and
// the API server fail. The order of events is drawn by rapid, which reproduces and shrinks
// failures.
type model struct {
	t   *rapid.T
	now time.Time

	version int
	job     *robotv1.Job
	groups  map[string]*robotv1.TaskGroup
	tasks   map[string]*robotv1.Task
	robots  map[string]*robotv1.Robot
	// toRequeue holds the tasks that the last requeue by the user, with generation requeued, included
	// and that were not pending since then.
	toRequeue map[string]bool
	requeued  int64
	// cache is the manager's view of job, groups and tasks.
	cache *modelCache
	// api is set while the API server is up.
	api             bool
	offlineAfter    time.Duration
	lastOnlineSince time.Time
	drafts          []draft
	contacts        *task.Contacts
	heartbeats      kit.Sightings[string, time.Time]
	// slices holds the HeartbeatSlices, sliceView is the manager's view of them, and stored has the
	// last heartbeats that were stored, by robot.
	slices    map[string]*robotv1.HeartbeatSlice
	sliceView *kit.Heartbeats
	stored    map[string]storedHeartbeat
	// hasDeletedSlice is set after an administrator has deleted a slice.
	hasDeletedSlice bool
	// stopsTakeTime is set if processes may take a while to stop.
	stopsTakeTime bool
	// broken is the rule that this model breaks. If empty, none.
	broken brokenRule

	server   *modelServer
	agents   map[string]*modelRobot
	uplink   []modelReport
	retained map[string]any // task lists, by robot

	started       map[attemptID]string // the robot that started the attempt
	mayStop       map[attemptID]bool   // something else than an interruption may have ended the attempt
	done          map[string]bool      // by robot and UID: the init task has done its part there
	replicaRobots map[int]string       // by replica: the robot where its tasks wait for each other
	array         modelArray
	runs          modelRuns
	failuresOff   bool // no more failures
	history       []string
}

// modelReport is a robot's report in flight to the server.
type modelReport struct {
	robot string
	wire.Status
}

// TestNoJobIsStuckAndNothingRunsTwice runs random interleavings of all events, and then lets the
// system settle.
func TestNoJobIsStuckAndNothingRunsTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(20, 200).Draw(t, "events") {
			m.runEvent()
			m.checkInvariants()
		}
		m.settleWithoutFailures()
	})
}

// TestHeartbeatsInSlices runs random interleavings of events that concern the contact of robots, for a
// task that must not run twice.
func TestHeartbeatsInSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runHeartbeats(t, "") })
}

// TestJobEndsBesideSilentRobot makes a robot silent while a job starts, and expects the others to do
// its tasks, although it stays connected.
func TestJobEndsBesideSilentRobot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.job.Spec.Disconnect.StopOnRobotAfter, m.job.Spec.Disconnect.Replace = nil, nil
		m.job.Spec.TaskGroups[0].InitTasks = nil
		m.job.Spec.TaskGroups[0].Tasks = []robotv1.TaskDefinition{{Name: "a", Driver: "exec"}}
		m.failuresOff = true
		rounds := rapid.IntRange(0, 5).Draw(t, "rounds before the silence")
		robots := m.robotIDs()
		silent := m.agents[robots[rapid.IntRange(1, len(robots)-1).Draw(t, "silent robot")]]
		for range rounds {
			m.settle()
			m.passTime(tick)
		}
		silent.silent = true
		m.settleWithoutFailures()
	})
}

// TestEachIndexEndsOnce runs random interleavings of all events around arrays, whose attempts are
// often lost and restored.
func TestEachIndexEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		drawArray(t, &m.job.Spec.TaskGroups[0])
		m.job.Spec.Disconnect.LostAfter, m.job.Spec.Disconnect.Replace = robotv1.NewDuration(time.Minute), nil
		for range rapid.IntRange(20, 200).Draw(t, "events") {
			m.runEvent()
			m.checkInvariants()
		}
		m.settleWithoutFailures()
	})
}

func newModel(t *rapid.T) *model {
	m := &model{
		t: t, now: clock, api: true, offlineAfter: 5 * time.Minute,
		groups: map[string]*robotv1.TaskGroup{}, tasks: map[string]*robotv1.Task{}, robots: map[string]*robotv1.Robot{},
		agents: map[string]*modelRobot{}, retained: map[string]any{}, started: map[attemptID]string{},
		done: map[string]bool{}, replicaRobots: map[int]string{}, cache: newModelCache(), array: newModelArray(), runs: newModelRuns(),
		slices: map[string]*robotv1.HeartbeatSlice{}, stored: map[string]storedHeartbeat{}, mayStop: map[attemptID]bool{},
	}
	m.heartbeats.Uptime, m.sliceView = m.uptime, kit.NewHeartbeats(m, m.uptime)
	m.contacts = task.NewContacts(m.uptime, m.sliceView)
	m.storeJob(drawJob(t))
	for i := range rapid.IntRange(2, 3).Draw(t, "robots") {
		id := fmt.Sprintf("r%d", i+1)
		m.robots[id] = newRobot(namespace, id, nil, robotState{})
		m.robots[id].UID, m.robots[id].ResourceVersion = types.UID("uid-"+id), m.nextVersion()
		m.robots[id].CreationTimestamp = metav1.NewTime(m.now)
		m.agents[id] = &modelRobot{
			m: m, id: id, live: map[string]*liveAttempt{}, ends: map[attemptID]*wire.Status{}, unacked: map[attemptID]wire.Status{}, acked: m.now,
			ranges: map[attemptID]*runningRange{}, restartsTasks: rapid.IntRange(0, 3).Draw(t, "restarts tasks") > 0,
			refuses: rapid.IntRange(0, 3).Draw(t, "refuses interruptions") > 0,
		}
	}
	m.startServer()
	for _, id := range m.robotIDs() {
		m.agents[id].connect()
		m.planRobot(id)
	}
	return m
}

func drawJob(t *rapid.T) *robotv1.Job {
	d := &robotv1.Disconnect{
		LostAfter: robotv1.NewDuration(rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Minute}).Draw(t, "lostAfter")),
		Reconcile: rapid.SampledFrom([]string{robotv1.ReconcileKeepOriginal, robotv1.ReconcileKeepReplacement, robotv1.ReconcileLongestRunning, robotv1.ReconcileBestScore}).Draw(t, "reconcile"),
	}
	if rapid.Bool().Draw(t, "stops itself") {
		d.StopOnRobotAfter = robotv1.NewDuration(rapid.SampledFrom([]time.Duration{2 * time.Minute, 10 * time.Minute}).Draw(t, "stopOnRobotAfter"))
	}
	if rapid.IntRange(0, 4).Draw(t, "replaces") == 0 {
		d.Replace = new(bool)
	}
	count, half := int32(rapid.IntRange(1, 3).Draw(t, "replicas")), int32(60)
	def := robotv1.TaskGroupDefinition{Name: "g", TaskGroupTemplate: robotv1.TaskGroupTemplate{Count: &count, Tasks: []robotv1.TaskDefinition{{Name: "a", Driver: "exec"}}}}
	if rapid.Bool().Draw(t, "two tasks") {
		def.Tasks = append(def.Tasks, robotv1.TaskDefinition{Name: "b", Driver: "exec"})
	}
	for _, name := range []string{"init", "side", "last"} {
		if rapid.IntRange(0, 2).Draw(t, name+" is an init task") == 0 {
			def.InitTasks = append(def.InitTasks, robotv1.TaskDefinition{Name: name, Driver: "exec", Daemon: name == "side"})
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "a daemon beside them") == 0 {
		def.Tasks = append(def.Tasks, robotv1.TaskDefinition{Name: "beside", Driver: "exec", Daemon: true})
	}
	if rapid.IntRange(0, 2).Draw(t, "times out") == 0 { // a timeout of the manager: these robots ignore it
		def.Tasks[0].Timeout = robotv1.NewDuration(30 * time.Second)
	}
	if rapid.IntRange(0, 2).Draw(t, "an array") == 0 {
		drawArray(t, &def)
	}
	if rapid.Bool().Draw(t, "restarts") {
		def.RestartPolicy = drawRestartPolicy(t)
	}
	return &robotv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "j", UID: "uid-j"},
		Spec: robotv1.JobSpec{
			TaskGroups: []robotv1.TaskGroupDefinition{def}, Disconnect: d, FailurePolicy: &robotv1.FailurePolicy{MaxFailedPercent: &half},
		},
	}
}

// runEvent runs one random event.
func (m *model) runEvent() {
	events := map[string]func(){
		"job":                    m.planJob,
		"group":                  func() { m.forEachGroup(m.cache.groups, m.planGroup) },
		"task":                   func() { m.withOneTask(func(n string) { m.applyDraft(m.planTask(n)) }) },
		"task late":              func() { m.withOneTask(func(n string) { m.drafts = append(m.drafts, m.planTask(n)) }) },
		"write late":             m.applyOldestDraft,
		"all tasks":              m.planTasks,
		"watch":                  m.server.deliver,
		"send due":               m.server.sendDue,
		"to robot":               m.deliverToRobot,
		"to server":              m.deliverToServer,
		"time":                   func() { m.passTime(time.Duration(rapid.IntRange(1, 30).Draw(m.t, "ticks")) * tick) },
		"end":                    m.endProcess,
		"repeat":                 func() { m.withOneRobot(func(r *modelRobot) { r.resendReports() }) },
		"disconnect":             func() { m.withOneRobot(m.disconnect) },
		"connect":                func() { m.withOneRobot(m.connect) },
		"crash":                  func() { m.withOneRobot((*modelRobot).restart) },
		"action":                 m.requestAction,
		"server":                 m.restartServer,
		"api":                    func() { m.api = !m.api },
		"silence":                func() { m.withOneRobot(m.silence) },
		"disconnect for minutes": func() { m.withOneRobot(m.disconnectForMinutes) },
		"cancel and requeue":     m.cancelAndRequeue,
		"lag":                    func() { m.cache.lags = !m.cache.lags },
		"delete slice":           m.deleteSlice,
		"hold":                   func() { m.withOneRobot(m.changeHold) },
	}
	// Events that make progress are drawn more often than failures.
	names := slices.Sorted(maps.Keys(events))
	names = append(names, "job", "group", "all tasks", "all tasks", "watch", "watch", "send due", "send due", "to robot", "to robot", "to robot", "to server", "to server", "time", "end")
	if _, ok := m.ranges(); ok {
		names = append(names, "end", "end", "end", "end") // there are more of them
	}
	if !m.api || !m.server.up { // an outage lasts, but not most of the time
		names = append(names, "api", "api", "api", "server", "server", "server")
	}
	if m.cache.lags {
		events["deliver"] = m.deliverSome
		names = append(names, "deliver", "deliver", "deliver", "lag")
	} else {
		m.cache.deliverAll()
	}
	events[rapid.SampledFrom(names).Draw(m.t, "event")]()
}

// checkInvariants checks what must hold after any order of events.
func (m *model) checkInvariants() {
	m.checkCanceled()
	m.checkUnconfirmedStops()
	if m.job.Spec.Disconnect.StopOnRobotAfter == nil {
		return
	}
	runs := map[string]string{}
	for _, id := range m.robotIDs() {
		for uid := range m.agents[id].live {
			if other, twice := runs[uid]; twice {
				m.failWithHistory("%s runs on %s and %s at the same time although stopOnRobotAfter is set", uid, other, id)
			}
			runs[uid] = id
		}
	}
}

// recordStart records that a robot starts an attempt, which must happen only once.
func (m *model) recordStart(robot string, id attemptID) {
	m.record("%s starts attempt %d of %s", robot, id.attempt, id.uid)
	if other, twice := m.started[id]; twice {
		m.failWithHistory("attempt %d of %s is started on %s after it was started on %s", id.attempt, id.uid, robot, other)
	}
	m.started[id] = robot
	m.checkInitTasks(robot, id.uid)
}

// checkInitTasks fails the test if an init task before this task has not done its part on the
// robot.
func (m *model) checkInitTasks(robot, uid string) {
	t := m.taskByUID(types.UID(uid))
	if t == nil {
		return // it was deleted while its dispatch was on its way
	}
	for _, def := range m.groups["g"].Spec.InitTasks {
		before := "uid-" + taskName(replicaIndex(t), def.Name)
		if before == uid {
			break
		}
		if !m.done[robot+"/"+before] {
			m.failWithHistory("%s starts on %s before init task %s", uid, robot, before)
		}
	}
	if t.Spec.Daemon {
		m.done[robot+"/"+uid] = true
	}
}

func (m *model) record(format string, args ...any) {
	m.history = append(m.history, m.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (m *model) failWithHistory(format string, args ...any) {
	if m.broken != "" {
		panic(foundViolation{})
	}
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.history, "\n"))
}

// managerCrashes reports whether the manager crashes now. It restarts at once; all its state is in the API
// server.
func (m *model) managerCrashes(before string) bool {
	if m.failuresOff || rapid.IntRange(0, 9).Draw(m.t, "crash") > 0 {
		return false
	}
	m.record("the manager crashes before it can %s", before)
	m.drafts, m.lastOnlineSince = nil, time.Time{}
	m.cache.deliverAll()
	m.lastOnlineSince = m.onlineSince()
	return true
}

// tick is the time between two checks of timeouts.
const tick = 5 * time.Second

// passTime advances the time: heartbeats are sent, and self-stop deadlines pass.
func (m *model) passTime(d time.Duration) {
	for end := m.now.Add(d); m.now.Before(end); {
		m.now = m.now.Add(tick)
		m.server.retryWrites()
		m.server.writeSlices(false)
		for _, id := range m.robotIDs() {
			m.agents[id].endStopping()
			m.agents[id].stopExpiredTasks()
			m.agents[id].startDueRuns()
			if m.now.Sub(clock)%(30*time.Second) == 0 {
				m.agents[id].sendHeartbeat()
			}
			m.planRobot(id)
		}
	}
}

func (m *model) robotIDs() []string { return slices.Sorted(maps.Keys(m.robots)) }

func (m *model) taskNames() []string { return slices.Sorted(maps.Keys(m.tasks)) }

func (m *model) pick(what string, from ...string) string {
	if m.failuresOff {
		return from[0]
	}
	return rapid.SampledFrom(from).Draw(m.t, what)
}

func (m *model) withOneTask(do func(name string)) {
	if names := slices.Sorted(maps.Keys(m.cache.tasks)); len(names) > 0 {
		do(m.pick("task", names...))
	}
}

func (m *model) withOneRobot(do func(*modelRobot)) { do(m.agents[m.pick("robot", m.robotIDs()...)]) }

func (m *model) forEachGroup(groups map[string]*robotv1.TaskGroup, do func(*robotv1.TaskGroup)) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		do(groups[name])
	}
}

func (m *model) planTasks() {
	for _, name := range slices.Sorted(maps.Keys(m.cache.tasks)) {
		m.applyDraft(m.planTask(name))
	}
}

// applyOldestDraft writes the result of an earlier plan.
func (m *model) applyOldestDraft() {
	if len(m.drafts) > 0 {
		first := m.drafts[0]
		m.drafts = m.drafts[1:]
		m.applyDraft(first)
	}
}

// sendToRobot puts a message in flight to a connected robot.
func (m *model) sendToRobot(robotID string, message any) {
	r := m.agents[robotID]
	if r == nil || !r.up {
		return
	}
	if ack, is := message.(heartbeatAck); is && r.silent {
		r.receive(ack) // by another part of the agent
	} else {
		r.inbox = append(r.inbox, message)
	}
}

// deliverToRobot delivers a message to a robot: in order, late, twice or never.
func (m *model) deliverToRobot() {
	m.withOneRobot(func(r *modelRobot) {
		if len(r.inbox) > 0 && !r.silent {
			r.receive(takeMessage(m, &r.inbox))
		}
	})
}

func (m *model) deliverToServer() {
	if len(m.uplink) > 0 && m.server.up {
		m.server.receiveReport(takeMessage(m, &m.uplink))
	}
}

// takeMessage removes a message from the queue, or copies it.
func takeMessage[T any](m *model, queue *[]T) T {
	i := 0
	if !m.failuresOff {
		i = rapid.IntRange(0, min(2, len(*queue)-1)).Draw(m.t, "position")
	}
	message := (*queue)[i]
	if m.failuresOff || rapid.IntRange(0, 4).Draw(m.t, "duplicate") > 0 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	return message
}

// endProcess ends a process, successfully or not.
func (m *model) endProcess() {
	m.withOneRobot(func(r *modelRobot) {
		isWaiting := func(uid string) bool { return r.live[uid].runs.isWaiting() }
		if uids := slices.DeleteFunc(r.liveUIDs(), isWaiting); len(uids) > 0 {
			uid := m.pick("process", uids...)
			code := int32(rapid.SampledFrom([]int{0, 0, 1}).Draw(m.t, "exit code"))
			reason := ""
			if code != 0 {
				reason = wire.ReasonExited
			}
			if r.live[uid].indexes != nil {
				r.endIndex(uid, code)
				return
			}
			m.record("%s of %s ends with %d", uid, r.id, code)
			r.endProcess(uid, reason, code)
		}
	})
}

func (m *model) disconnect(r *modelRobot) {
	if r.up {
		m.record("%s is disconnected", r.id)
		r.disconnect()
		if rapid.Bool().Draw(m.t, "the broker publishes the last will") {
			m.server.receiveWill(r.id)
		}
	}
}

// disconnectForMinutes disconnects one robot for a long time while all others continue.
func (m *model) disconnectForMinutes(r *modelRobot) {
	m.disconnect(r)
	for range rapid.IntRange(1, 10).Draw(m.t, "minutes") {
		for range 4 {
			m.passTime(15 * time.Second)
			m.settle()
			m.checkInvariants()
		}
	}
	m.connect(r)
}

// silence makes a robot handle no more messages for its tasks, or all those that have arrived.
func (m *model) silence(r *modelRobot) {
	r.silent = !r.silent
	m.record("%s is silent: %t", r.id, r.silent)
	for range rapid.IntRange(0, 10).Draw(m.t, "minutes of silence") {
		m.settle()
		m.checkInvariants()
		m.passTime(time.Minute)
	}
}

// maySettleSilent reports whether the job ends although a robot stays silent: its tasks can be
// replaced, no other robot has failed them or has a report under way that one has ended, none has to
// follow a task of its replica, and it repeats no report, which the server takes for an answer.
func (m *model) maySettleSilent(r *modelRobot) bool {
	d, def := m.job.Spec.Disconnect, m.job.Spec.TaskGroups[0]
	for _, t := range m.tasks {
		if len(t.Status.FailedRobots) > 0 || lifecycle.TaskState(t.Status.State) == lifecycle.TaskExited {
			return false
		}
	}
	if m.hasFailedIndex() {
		return false // it will be tried on another robot
	}
	for _, robot := range m.agents {
		if len(robot.unacked) > 0 {
			return false
		}
	}
	return len(r.live) == 0 && d.StopOnRobotAfter == nil && (d.Replace == nil || *d.Replace) && def.Tasks[0].Timeout == nil && !def.HasStages()
}

// cancelAndRequeue cancels the job and requeues it, as an operator would.
func (m *model) cancelAndRequeue() {
	m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredCanceled })
	if !m.api {
		return
	}
	m.settle()
	if slices.Contains(lifecycle.JobActions(lifecycle.JobState(m.job.Status.State)), lifecycle.JobRequeue) {
		m.requeue(robotv1.Requeue{Scope: robotv1.RequeueAll})
	}
	m.settle()
}

func (m *model) connect(r *modelRobot) {
	if m.boot(r); !r.up && !r.isOff {
		m.record("%s reconnects", r.id)
		r.connect()
	}
}

// restartServer stops the server, or starts it if it was down. Messages in flight to it are lost.
func (m *model) restartServer() {
	if m.server.up || !m.api {
		m.server.up = false
		return
	}
	m.uplink = nil
	m.startServer()
}

// requestAction requests an action that an operator may request now.
func (m *model) requestAction() {
	if !m.api {
		return
	}
	state := lifecycle.JobState(m.job.Status.State)
	legal := func(g lifecycle.JobSignal) bool { return slices.Contains(lifecycle.JobActions(state), g) }
	switch action := m.pick("action", "pause", "resume", "cancel", "requeue", "requeue failed", "requeue one", "requeue index", "evict", "interrupt", "interrupt", "drain", "uncordon"); {
	case action == "pause" && legal(lifecycle.JobPause):
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredPaused })
	case action == "resume" && legal(lifecycle.JobResume):
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredRunning })
	case action == "cancel" && legal(lifecycle.JobCancel):
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredCanceled })
	case action == "requeue" && legal(lifecycle.JobRequeue):
		m.requeue(robotv1.Requeue{Scope: robotv1.RequeueAll})
	case action == "requeue failed" && legal(lifecycle.JobRequeueSome):
		m.requeue(robotv1.Requeue{Scope: robotv1.RequeueFailed})
	case action == "requeue one" && legal(lifecycle.JobRequeueSome):
		m.withOneTask(func(name string) { m.requeue(robotv1.Requeue{Tasks: []string{name}}) })
	case action == "requeue index" && legal(lifecycle.JobRequeueSome):
		m.requeue(robotv1.Requeue{Tasks: []string{indexTaskName(rapid.Int32Range(0, 8).Draw(m.t, "index"))}})
	case action == "evict":
		m.withOneTask(m.evictTask)
	case action == "interrupt":
		m.withOneTask(m.interruptTask)
	case action == "drain", action == "uncordon":
		m.withOneRobot(func(r *modelRobot) { m.robots[r.id].Spec.Drain = action == "drain" })
	default:
		return
	}
	m.record("an operator requests an action")
}

func (m *model) requeue(action robotv1.Requeue) {
	action.Generation = 1
	if r := m.job.Spec.Requeue; r != nil {
		action.Generation = r.Generation + 1
	}
	m.recordRequeue(&action)
	m.updateJobSpec(func(s *robotv1.JobSpec) { s.Requeue, s.DesiredState = &action, robotv1.DesiredRunning })
}

// storeTask stores a Task and adds it to the server's watch.
func (m *model) storeTask(t *robotv1.Task) *robotv1.Task {
	t.ResourceVersion = m.nextVersion()
	m.tasks[t.Name] = t
	if !isListed(t) {
		m.mayStop[attemptID{string(t.UID), t.Status.Attempt}] = true
	}
	if lifecycle.TaskState(t.Status.State).OrPending() == lifecycle.TaskPending {
		delete(m.toRequeue, t.Name)
	}
	m.cache.add("task", func() { m.cache.tasks[t.Name] = t })
	m.server.changes = append(m.server.changes, taskChange{task: t})
	return t
}

// deleteTask deletes a Task and adds that to the server's watch.
func (m *model) deleteTask(t *robotv1.Task) {
	m.record("%s is deleted", t.Name)
	last := t.DeepCopy()
	last.ResourceVersion = m.nextVersion()
	delete(m.tasks, t.Name)
	delete(m.toRequeue, t.Name)
	m.cache.add("task", func() { delete(m.cache.tasks, t.Name) })
	m.server.changes = append(m.server.changes, taskChange{task: last, isDeleted: true})
}

// taskByUID returns the Task with this UID, or nil.
func (m *model) taskByUID(uid types.UID) *robotv1.Task {
	for _, t := range m.tasks {
		if t.UID == uid {
			return t
		}
	}
	return nil
}

// writeTask stores next if seen is the current version. If it is not stored, written is nil;
// conflict is set if seen is outdated.
func (m *model) writeTask(seen, next *robotv1.Task) (written *robotv1.Task, conflict bool) {
	if !m.api {
		return nil, false
	}
	if now := m.tasks[seen.Name]; now == nil || now.ResourceVersion != seen.ResourceVersion {
		return nil, true
	}
	m.checkEnds(seen, next)
	m.checkRuns(seen, next)
	m.checkFailureList(seen, next)
	from, to := lifecycle.TaskState(seen.Status.State).OrPending(), lifecycle.TaskState(next.Status.State).OrPending()
	if from != to && !slices.ContainsFunc(lifecycle.TaskSignals, func(g lifecycle.TaskSignal) bool {
		s, ok := lifecycle.StepTask(from, g)
		return ok && s == to
	}) {
		m.failWithHistory("%s changes from %s to %s, which the state machine does not allow", seen.Name, from, to)
	}
	return m.storeTask(next.DeepCopy()), false
}

func (m *model) writeRobot(id string, status robotv1.RobotStatus) {
	next := m.robots[id].DeepCopy()
	next.Status, next.ResourceVersion = status, m.nextVersion()
	if at := status.LastHeartbeatTime; at != nil {
		m.recordStoredHeartbeat(id, at.Time)
	}
	m.robots[id] = next
	m.observeContact(id)
	m.observeHeartbeat(id)
}

// uptime returns how long the manager and the server have been running.
func (m *model) uptime() time.Duration { return m.now.Sub(clock) }

// observeContact returns for how long a robot is out of contact, as the task controller observes it.
func (m *model) observeContact(id string) task.Contact {
	return m.contactOf(types.NamespacedName{Namespace: namespace, Name: id}, m.robots[id])
}

// observeHeartbeat returns the silence of a robot, as the robot controller observes it.
func (m *model) observeHeartbeat(id string) time.Duration {
	var last time.Time
	if at := m.robots[id].Status.LastHeartbeatTime; at != nil {
		last = at.UTC()
	}
	silence, _ := m.heartbeats.Observe(id, last)
	return silence
}

// settleWithoutFailures ends all failures and lets the system settle: the job ends, and with it every task and
// process.
func (m *model) settleWithoutFailures() {
	m.record("no failures from here on")
	m.failuresOff, m.api = true, true
	if !m.server.up {
		m.startServer()
	}
	for i, id := range m.robotIDs() {
		r := m.agents[id]
		m.robots[id].Spec.Drain = false
		m.connect(r)
		if i == 0 || !m.maySettleSilent(r) {
			r.silent = false
		}
	}
	if m.job.Spec.DesiredState == robotv1.DesiredPaused {
		m.updateJobSpec(func(s *robotv1.JobSpec) { s.DesiredState = robotv1.DesiredRunning })
	}
	for range 1000 {
		m.settle()
		m.checkInvariants()
		if m.isSettled() {
			m.checkSettledArray()
			return
		}
		m.passTime(tick)
	}
	var left []string
	for _, n := range m.taskNames() {
		left = append(left, fmt.Sprintf("%s %+v", n, m.tasks[n].Status))
	}
	m.failWithHistory("the system does not settle: job %s, %s", m.job.Status.State, strings.Join(left, "\n"))
}

// settle runs every actor until it has nothing to do.
func (m *model) settle() {
	for len(m.drafts) > 0 {
		m.applyOldestDraft()
	}
	for _, plan := range m.drawOrder(m.planJob, func() { m.forEachGroup(m.cache.groups, m.planGroup) }, m.planTasks) {
		m.cache.deliverAll()
		plan()
	}
	for len(m.server.changes) > 0 && m.api {
		m.server.deliver()
	}
	m.server.sendDue()
	for _, id := range m.robotIDs() {
		r := m.agents[id]
		r.handleInbox()
		for _, uid := range r.liveUIDs() {
			t := m.taskByUID(types.UID(uid))
			daemon := t != nil && t.Spec.Daemon // runs until it is stopped
			isDue := m.failuresOff && !daemon && !r.live[uid].runs.isWaiting() && m.now.Sub(r.live[uid].started) > time.Minute
			switch {
			case isDue && r.live[uid].indexes != nil:
				r.endIndex(uid, 0)
			case isDue:
				r.endProcess(uid, "", 0)
			}
		}
		r.resendReports()
	}
	for len(m.uplink) > 0 && m.server.up {
		m.deliverToServer()
	}
}

// drawOrder returns the controllers in the order in which they run.
func (m *model) drawOrder(controllers ...func()) []func() {
	if m.failuresOff {
		return controllers
	}
	for i := range controllers {
		j := rapid.IntRange(i, len(controllers)-1).Draw(m.t, "next controller")
		controllers[i], controllers[j] = controllers[j], controllers[i]
	}
	return controllers
}

func (m *model) isSettled() bool {
	if !lifecycle.JobState(m.job.Status.State).IsTerminal() {
		return false
	}
	for _, t := range m.tasks {
		if !lifecycle.TaskState(t.Status.State).IsTerminal() {
			return false
		}
	}
	for _, r := range m.agents {
		if len(r.live)+len(r.unacked) > 0 && !r.silent {
			return false
		}
	}
	return !m.hasUnconfirmedStops()
}
