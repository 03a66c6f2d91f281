package gateway

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// modelServer has the server's real task lists, downlink and report rules, on a network that the
// model controls. It is replaced at each restart.
type modelServer struct {
	m *model
	// up is set while it runs and is connected to the broker.
	up       bool
	objects  *objectIndex
	lists    *taskLists
	downlink *downlink
	states   *robotStates
	slices   *heartbeatSlices
	// heartbeats are the last ones that were received, by robot.
	heartbeats map[string]heartbeatAck
	// unwritten are the robots whose status could not be written.
	unwritten map[string]bool
	gateway   *Gateway // evaluates unanswered dispatches
	// changes are the objects that the watch has not delivered yet.
	changes []taskChange
}

// taskChange is a change of a Task, or its deletion.
type taskChange struct {
	task      *robotv1.Task
	isDeleted bool
}

func (m *model) startServer() {
	s := &modelServer{m: m, up: true, objects: newObjectIndex(), states: newRobotStates(false, m.uptime), heartbeats: map[string]heartbeatAck{}, unwritten: map[string]bool{}}
	s.slices = newHeartbeatSlices(m.offlineAfter, m.uptime, s.states, s.objects)
	m.server = s
	now := func() time.Time { return m.now }
	connected := func() int64 { return 1 }
	s.lists = &taskLists{
		now: now, objects: s.objects, protocolOf: alwaysV2, publish: s.publish, onTooLarge: func(string, int) {}, upConnection: connected, currentConnection: connected,
	}
	s.lists.initMaps()
	s.downlink = &downlink{
		now: now, objects: s.objects, protocolOf: alwaysV2, dispatchEpoch: s.lists.dispatchEpoch,
		publish: func(connection int64, robotID string, _ *robotv1.Task, payload []byte) bool {
			return s.publish(connection, robotID, wire.KindDispatch, payload, false)
		},
		releaseTask: func(types.UID) {}, addReport: func(report) bool { return true }, onOverdue: s.recordOverdue,
		upConnection: connected, repeatPause: minRepeat, legacyGrace: releaseAfter,
	}
	s.downlink.initMaps()
	s.gateway = &Gateway{
		cfg: Config{UnresponsiveAfter: unresponsiveAfter}, now: now, objects: s.objects, robots: s.states,
		reports: &reportWriter{now: now, objects: s.objects}, robotQueue: syncQueue{sync: s.sync},
	}
	s.gateway.reports.initWorkers()
	for _, id := range m.robotIDs() {
		s.objects.putRobot(m.robots[id])
	}
	for _, name := range slices.Sorted(maps.Keys(m.slices)) {
		s.slices.store(m.slices[name].DeepCopy())
	}
	s.slices.releaseUnknown()
	for _, id := range m.robotIDs() {
		if m.robots[id].Status.HeartbeatSlice != "" {
			s.slices.assign(m.robots[id])
		}
	}
	highest := uint64(0)
	for _, name := range m.taskNames() {
		s.objects.deliverTask(m.tasks[name])
		highest = max(highest, versionOf(m.tasks[name].ResourceVersion))
	}
	s.objects.raiseVersion(max(highest, uint64(m.version)))
	s.lists.sendAll(1)
	for _, name := range m.taskNames() {
		s.downlink.onTaskChanged(m.tasks[name].UID)
	}
}

// syncQueue writes the status of a robot at once.
type syncQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	sync func(id string)
}

// Add implements the queue.
func (q syncQueue) Add(id string) { q.sync(id) }

// recordOverdue evaluates an unanswered dispatch, and writes the result.
func (s *modelServer) recordOverdue(o overdueDispatch) {
	s.gateway.recordOverdue(o)
	for _, r := range s.gateway.reports.takeAll() {
		s.m.record("%s has not answered the dispatch of %s since %s", r.robot, r.uid, r.acceptance.since.Format("15:04:05"))
		s.applyReport(r)
	}
}

// publish puts a message in flight to a connected robot.
func (s *modelServer) publish(_ int64, robotID string, k wire.Kind, payload []byte, _ bool) bool {
	var message any
	var err error
	if k == wire.KindState {
		message, err = wire.Decode[wire.TaskList](payload)
		s.m.retained[robotID] = message
	} else {
		var d wire.Dispatch
		d, err = wire.Decode[wire.Dispatch](payload)
		s.m.checkDispatched(d)
		message = d
	}
	if err != nil {
		s.m.t.Fatalf("%s: %v", k, err)
	}
	s.m.sendToRobot(robotID, message)
	return true
}

// deliver delivers the next watch event to the server.
func (s *modelServer) deliver() {
	if len(s.changes) == 0 || !s.m.api {
		return
	}
	t, isDeleted := s.changes[0].task, s.changes[0].isDeleted
	s.changes = s.changes[1:]
	if isDeleted {
		if old := s.objects.removeTask(t); old != nil {
			s.lists.onTaskChanged(old, nil)
			s.downlink.onTaskRemoved(old)
		}
		return
	}
	if old, fresh := s.objects.deliverTask(t); fresh {
		s.lists.onTaskChanged(old, t)
		s.downlink.onTaskChanged(t.UID)
	}
}

// sendDue sends what is due.
func (s *modelServer) sendDue() {
	if !s.up {
		return
	}
	for s.downlink.sendNext() {
	}
	s.lists.sendDue()
}

// answerRegistration handles the registration of a robot that has reconnected.
func (s *modelServer) answerRegistration(id string) {
	if list, ok := s.m.retained[id]; ok {
		s.m.sendToRobot(id, list) // sent by the broker for its subscription
	}
	if !s.up {
		return
	}
	s.states.updateState(id, true, func(w *robotState) {
		w.recordRegistration(s.m.now, robotv1.ProtocolV2, wire.Register{AnswersDispatches: true, RunsArrays: true, RestartsTasks: s.m.agents[id].restartsTasks, RefusesInterruptions: s.m.agents[id].refuses, Local: s.m.agents[id].localState()})
		w.awaitsResponse = false
	})
	s.lists.resendList(id)
	s.lists.sendList(id)
	s.downlink.onRobotRegistered(id, s.objects.tasksOn(id), false)
	s.sync(id)
}

// receiveHeartbeat records a heartbeat. It is acknowledged only if the written slice covers it.
func (s *modelServer) receiveHeartbeat(id string, ack heartbeatAck) {
	if !s.up {
		return
	}
	s.states.updateState(id, true, func(w *robotState) {
		w.recordHeartbeat(s.m.now, robotv1.ProtocolV2, wire.Heartbeat{Seq: w.heartbeatSeq + 1})
	})
	s.heartbeats[id] = ack
	s.slices.assign(s.m.robots[id])
	s.sync(id)
	s.ackHeartbeat(id)
	if w := s.stateOf(id); w.awaitsAck() && !w.isCovered {
		s.writeSlices(true)
	}
}

// receiveWill records that a connection broke.
func (s *modelServer) receiveWill(id string) {
	if s.up {
		s.states.updateState(id, true, func(w *robotState) { w.disconnectReason = robotv1.ReasonLastWill })
		s.sync(id)
	}
}

func (s *modelServer) sync(id string) {
	actions := planRobot(s.m.now, id, s.stateOf(id), s.m.robots[id], statusPeriod(id, s.m.offlineAfter, true))
	s.unwritten[id] = actions.status != nil && !s.m.api
	if actions.status != nil && s.m.api {
		for i := range actions.status.Conditions {
			c := &actions.status.Conditions[i]
			if was := meta.FindStatusCondition(s.m.robots[id].Status.Conditions, c.Type); was == nil || was.Status != c.Status {
				c.LastTransitionTime = metav1.NewTime(s.m.now) // the model has its own clock
			}
		}
		s.m.writeRobot(id, *actions.status)
		s.objects.putRobot(s.m.robots[id])
	}
}

// receiveReport applies one report and writes the result.
func (s *modelServer) receiveReport(m modelReport) {
	if !s.up {
		return
	}
	s.states.updateState(m.robot, true, func(w *robotState) { w.unresponsive, w.hasAnswered = false, true })
	s.sync(m.robot)
	r := report{robot: m.robot, uid: types.UID(m.TaskUID), attempt: m.Attempt, Status: m.WithinLimits()}
	if t := s.objects.task(r.uid); t != nil && isProgressOf(t, r) && !s.m.failuresOff && rapid.IntRange(0, 2).Draw(s.m.t, "too much progress") == 0 {
		return
	}
	s.applyReport(r)
}

// applyReport applies a report of a robot, or of the server about its answer.
func (s *modelServer) applyReport(r report) {
	t := s.objects.task(r.uid)
	for {
		if t == nil {
			s.dropOrphan(r)
			return
		}
		v := applyReport(s.m.now, s.m.seenByServer(t), r)
		s.m.checkLateReport(t, r, v.status)
		if v.status == nil {
			s.settle(t, r, v)
			return
		}
		next := t.DeepCopy()
		next.Status = *v.status
		written, conflict := s.m.writeTask(t, next)
		switch {
		case written != nil:
			old, _ := s.objects.storeWrittenTask(written)
			s.lists.onTaskChanged(old, written)
			s.downlink.onTaskChanged(written.UID)
			s.settle(t, r, v)
			return
		case !conflict:
			return // the API server is down; the robot repeats the report
		}
		t = s.m.taskByUID(r.uid)
	}
}

// dropOrphan acknowledges a report about a Task that is deleted.
func (s *modelServer) dropOrphan(r report) {
	if s.m.taskByUID(r.uid) == nil {
		s.m.sendToRobot(r.robot, wire.TaskAck{UID: string(r.uid), Attempt: r.attempt, Seq: r.Seq})
	}
}

// settle records the answer of a robot, and acknowledges the report. T is the Task as it was when the
// report was applied.
func (s *modelServer) settle(t *robotv1.Task, r report, v reportOutcome) {
	if r.acceptance != nil {
		return
	}
	s.downlink.recordAnswer(r)
	if v.ack {
		s.m.checkAcknowledged(t, r)
		s.m.sendToRobot(r.robot, wire.TaskAck{UID: string(r.uid), Attempt: r.attempt, Seq: r.Seq})
	}
}

func (m *model) nextVersion() string {
	m.version++
	return strconv.Itoa(m.version)
}
