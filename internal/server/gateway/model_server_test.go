package bridge

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/wire"
)

// modelServer is the server's own lists, downlink and judgement, over a network
// that the model owns. It lives until the next restart.
type modelServer struct {
	m *model
	// up: it runs, and speaks to the broker.
	up       bool
	view     *view
	lists    *lists
	downlink *downlink
	words    *robots
	// news are objects that the watch has yet to deliver.
	news []*robotv1.Task
}

func (m *model) startServer() {
	s := &modelServer{m: m, up: true, view: newView(), words: newRobots(false)}
	m.server = s
	now := func() time.Time { return m.now }
	connected := func() int64 { return 1 }
	s.lists = &lists{
		now: now, view: s.view, dialect: speaksOurs, publish: s.publish, tooMany: func(string, int) {}, up: connected, current: connected,
	}
	s.lists.init()
	s.downlink = &downlink{
		now: now, view: s.view, dialect: speaksOurs, epoch: s.lists.dispatchEpoch,
		publish: func(connection int64, robotID string, _ *robotv1.Task, payload []byte) bool {
			return s.publish(connection, robotID, wire.KindDispatch, payload, false)
		},
		release: func(types.UID) {}, reject: func(report) bool { return true }, silent: func(overdue) {},
		up: connected, pause: repeatFirst, patient: releaseAfter,
	}
	s.downlink.init()
	for _, id := range m.robotIDs() {
		s.view.putRobot(m.robots[id])
	}
	highest := uint64(0)
	for _, name := range m.taskNames() {
		s.view.deliverTask(m.tasks[name])
		highest = max(highest, versionOf(m.tasks[name].ResourceVersion))
	}
	s.view.reached(max(highest, uint64(m.version)))
	s.lists.sendAll(1, m.now)
	for _, name := range m.taskNames() {
		s.downlink.changed(m.tasks[name].UID)
	}
}

// publish puts a message on its way to a robot that is there.
func (s *modelServer) publish(_ int64, robotID string, k wire.Kind, payload []byte, _ bool) bool {
	var message any
	var err error
	if k == wire.KindState {
		message, err = wire.Decode[wire.TaskList](payload)
		s.m.retained[robotID] = message
	} else {
		message, err = wire.Decode[wire.Dispatch](payload)
	}
	if err != nil {
		s.m.t.Fatalf("%s: %v", k, err)
	}
	s.m.send(robotID, message)
	return true
}

// deliver shows the server the next object of its watch.
func (s *modelServer) deliver() {
	if len(s.news) == 0 || !s.m.api {
		return
	}
	t := s.news[0]
	s.news = s.news[1:]
	if old, fresh := s.view.deliverTask(t); fresh {
		s.lists.changed(old, t)
		s.downlink.changed(t.UID)
	}
}

// speak sends what is due.
func (s *modelServer) speak() {
	if !s.up {
		return
	}
	for s.downlink.fireOne() {
	}
	s.lists.sendDue()
}

// registered answers a robot that has come back.
func (s *modelServer) registered(id string) {
	if list, ok := s.m.retained[id]; ok {
		s.m.send(id, list) // with its subscription
	}
	if !s.up {
		return
	}
	s.words.change(id, true, func(w *word) { w.register(s.m.now, robotv1.ProtocolK8s4r, wire.Register{}); w.waits = false })
	s.lists.refresh(id)
	s.lists.send(id)
	s.downlink.robotHere(id, s.view.tasksOn(id), false)
	s.sync(id)
}

// heard takes in a heartbeat. It is acknowledged as far as what is written covers
// it.
func (s *modelServer) heard(id string, ack heartbeatAck) {
	if !s.up {
		return
	}
	s.words.change(id, true, func(w *word) { w.beat(s.m.now, robotv1.ProtocolK8s4r, wire.Heartbeat{N: 1}) })
	s.sync(id)
	if acknowledges(s.m.robots[id].Status, s.words.get(id).heard) {
		s.m.send(id, ack)
	}
}

// will takes in that a connection broke.
func (s *modelServer) will(id string) {
	if s.up {
		s.words.change(id, true, func(w *word) { w.gone = robotv1.ReasonLastWill })
		s.sync(id)
	}
}

func (s *modelServer) sync(id string) {
	steps := planRobot(s.m.now, id, s.words.get(id), s.m.robots[id], s.m.offlineAfter)
	if steps.status != nil && s.m.api {
		for i := range steps.status.Conditions {
			c := &steps.status.Conditions[i]
			if was := meta.FindStatusCondition(s.m.robots[id].Status.Conditions, c.Type); was == nil || was.Status != c.Status {
				c.LastTransitionTime = metav1.NewTime(s.m.now) // the model has a clock of its own
			}
		}
		s.m.writeRobot(id, *steps.status)
		s.view.putRobot(s.m.robots[id])
	}
}

// hear judges one report and writes what comes of it.
func (s *modelServer) hear(said modelReport) {
	t := s.view.task(types.UID(said.TaskUID))
	if !s.up || t == nil {
		return
	}
	r := report{robot: said.robot, uid: t.UID, attempt: said.Attempt, Status: said.Status}
	for {
		v := judge(s.m.now, t, r)
		if v.status == nil {
			s.settle(r, v)
			return
		}
		next := t.DeepCopy()
		next.Status = *v.status
		written, conflict := s.m.writeTask(t, next)
		switch {
		case written != nil:
			old, _ := s.view.wroteTask(written)
			s.lists.changed(old, written)
			s.downlink.changed(written.UID)
			s.settle(r, v)
			return
		case !conflict:
			return // the API server is away; the robot says it again
		}
		t = s.m.tasks[t.Name]
	}
}

func (s *modelServer) settle(r report, v verdict) {
	s.downlink.answered(r)
	if v.ack {
		s.m.send(r.robot, wire.TaskAck{UID: string(r.uid), Attempt: r.attempt, Seq: r.Seq})
	}
}

func (m *model) nextVersion() string {
	m.version++
	return strconv.Itoa(m.version)
}
