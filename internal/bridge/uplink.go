package bridge

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/traceparent"
	"k8s4r.io/k8s4r/internal/wire"
)

// receive sorts one message to its handler. It never waits: the broker drops
// for a server that does not read.
func (b *Bridge) receive(topic string, payload []byte, trace string) {
	a, err := wire.ParseTopic(topic)
	if err != nil {
		b.malformed("", "topic", err)
		return
	}
	b.m.received.WithLabelValues(string(a.Kind)).Inc()
	if !b.limits.Allow(b.knownID(a.RobotID), b.now()) {
		b.drop(a.Kind, "too fast")
		return
	}
	// A broker that nobody has told of a revocation still brings its words.
	if b.view.revoked(a.RobotID) {
		b.drop(a.Kind, "revoked")
		return
	}
	if err := b.handle(a, payload, trace); err != nil {
		b.malformed(a.RobotID, string(a.Kind), err)
	}
}

// knownID is the id of a robot that has an object. Strangers share one name, so
// that they cannot fill the memory.
func (b *Bridge) knownID(id string) string {
	if b.view.robot(id) == nil {
		return ""
	}
	return id
}

func (b *Bridge) handle(a wire.Address, payload []byte, trace string) error {
	if a.Kind == wire.KindRegister {
		return b.hearRegister(a, payload)
	}
	if a.Kind == wire.KindHeartbeat {
		return b.hearHeartbeat(a, payload)
	}
	if err := b.believes(a.RobotID); err != nil {
		return err
	}
	switch a.Kind {
	case wire.KindPresence:
		return b.hearPresence(a, payload)
	case wire.KindStatus:
		return b.hearStatus(a, payload, trace)
	case wire.KindLogs:
		b.logs.hear(a, payload)
		return nil
	default:
		return nil // nothing that the server subscribes to
	}
}

// speaker is the robot that a message is from, and its dialect. The topic is
// believed, because the broker checked it; a payload that disagrees with it
// is refused.
func (b *Bridge) speaker(a wire.Address, said string) (id, protocol string, err error) {
	if a.Shared {
		return said, robotv1.ProtocolDocument, b.sharedSpeaker(said)
	}
	if said != "" && said != a.RobotID {
		return a.RobotID, "", &pretenceError{a.RobotID, fmt.Sprintf("the payload says it is from %.80q", said)}
	}
	if r := b.view.robot(a.RobotID); !b.cfg.AllowAnonymous && (r == nil || !proves(r)) {
		return a.RobotID, "", errAnonymous
	}
	return a.RobotID, robotv1.ProtocolK8s4r, nil
}

// believes refuses what comes on the topics of a robot that proves nothing, unless
// it was let in all the same. The broker has asked that before, if it is ours.
func (b *Bridge) believes(id string) error {
	r := b.view.robot(id)
	if b.cfg.AllowAnonymous || r != nil && proves(r) || b.cfg.AllowLegacy && b.lastDialect(id) == robotv1.ProtocolDocument {
		return nil
	}
	return errAnonymous
}

// errAnonymous refuses robots that prove nothing.
var errAnonymous = errors.New("the robot has not joined; run its agent with --server and --token (k8s4r token create), or see --allow-anonymous-agents")

// errLegacy refuses the document's agents, of whom any can speak for any other.
var errLegacy = errors.New("agents of the document are not heard; see --allow-legacy-agents")

// sharedSpeaker refuses those on a shared topic who may not be there.
func (b *Bridge) sharedSpeaker(said string) error {
	if !b.cfg.AllowLegacy {
		return errLegacy
	}
	if err := wire.ValidRobotID(said); err != nil {
		return err
	}
	if r := b.view.robot(said); r != nil && proves(r) {
		return &pretenceError{said, "somebody on a topic that all may use says that it is this robot, which proves itself"}
	}
	return nil
}

// proves tells whether the robot has a key that speaks for it, so that nothing
// else does.
func proves(r *robotv1.Robot) bool {
	return r.Revoked() || r.Status.Identity != nil && r.Status.Identity.Accepted != nil
}

// pretenceError is a message of somebody who says that he is another.
type pretenceError struct{ robot, why string }

// Error says what was wrong.
func (e *pretenceError) Error() string { return e.why }

func (b *Bridge) hearRegister(a wire.Address, payload []byte) error {
	r, err := wire.Decode[wire.Register](payload)
	if err != nil {
		b.refuse(a.RobotID, "Registration refused: "+err.Error())
		return err
	}
	id, protocol, err := b.speaker(a, r.RobotID)
	if err != nil {
		b.refuse(a.RobotID, "Registration refused: "+err.Error())
		return err
	}
	return b.register(id, protocol, r)
}

func (b *Bridge) register(id, protocol string, r wire.Register) error {
	known := b.view.robot(id)
	if !b.robots.change(id, known != nil, func(w *word) { w.register(b.now(), protocol, r) }) {
		return errTooManyStrangers
	}
	if known != nil && !b.judgesToken(b.robots.get(id)) {
		b.tellAll(id, protocol)
	}
	b.robotQueue.Add(id)
	return nil
}

// tellAll sends a robot that has registered all that is for it. It comes before the
// answer: that is what a document agent subscribes after, and it runs what an older
// list names.
func (b *Bridge) tellAll(id, protocol string) {
	b.lists.refresh(id)
	b.lists.send(id)
	b.downlink.robotHere(id, b.view.tasksOn(id), protocol == robotv1.ProtocolDocument)
}

// refuse tells a robot that it is not registered. Nobody knows whom a message
// without a robot in it came from.
func (b *Bridge) refuse(robotID, message string) {
	if robotID != "" {
		b.sendTo(robotID, wire.KindResponse, wire.Response{Message: message, RobotID: robotID})
	}
}

func (b *Bridge) hearHeartbeat(a wire.Address, payload []byte) error {
	h, err := wire.Decode[wire.Heartbeat](payload)
	if err != nil {
		return err
	}
	id, protocol, err := b.speaker(a, h.RobotID)
	if err != nil {
		return err
	}
	r := b.view.robot(id)
	switch {
	case r == nil && protocol == robotv1.ProtocolDocument:
		return b.register(id, protocol, wire.Register{RobotID: id, Token: h.Token, DeviceInfo: h.DeviceInfo})
	case r == nil:
		b.refuse(id, "This robot is not known here; register it again")
		return nil
	}
	b.beat(id, protocol, h, r)
	return nil
}

// beat takes in the heartbeat of a known robot. Most are acknowledged and never
// written down: one in a while is, and covers those that follow.
func (b *Bridge) beat(id, protocol string, h wire.Heartbeat, r *robotv1.Robot) {
	b.robots.change(id, true, func(w *word) { w.beat(b.now(), protocol, h) })
	b.acknowledge(id, r)
	b.hearUses(id, h.Use)
	if s := planRobot(b.now(), id, b.robots.get(id), r, b.cfg.OfflineAfter); s.status != nil {
		b.robotQueue.Add(id)
	}
}

// acknowledge answers a robot's last heartbeat if what is written covers it.
func (b *Bridge) acknowledge(id string, r *robotv1.Robot) {
	if w := b.robots.get(id); w.beats > 0 && acknowledges(r.Status, w.heard) {
		b.acks.heartbeat(id, w.beats)
	}
}

func (b *Bridge) hearPresence(a wire.Address, payload []byte) error {
	p, err := wire.Decode[wire.Presence](payload)
	if err != nil {
		return err
	}
	if b.view.robot(a.RobotID) == nil {
		return nil // nobody whose absence matters
	}
	b.robots.change(a.RobotID, true, func(w *word) { w.part(b.now(), p) })
	b.robotQueue.Add(a.RobotID)
	return nil
}

func (b *Bridge) hearStatus(a wire.Address, payload []byte, trace string) error {
	s, err := wire.Decode[wire.Status](payload)
	if err != nil {
		return err
	}
	r, err := newReport(a, s)
	if err != nil {
		return err
	}
	r.heard = b.now()
	r.trace, _ = traceparent.Parse(trace)
	b.downlink.answered(r)
	b.lists.ended(r)
	b.answers(a.RobotID)
	if !b.reports.add(r) {
		b.drop(wire.KindStatus, "queue is full")
	}
	return nil
}

// newReport joins topic and payload. Our agents name the attempt; for the
// others it is a part of the UID.
func newReport(a wire.Address, s wire.Status) (report, error) {
	if s.RobotName != "" && s.RobotName != a.RobotID {
		return report{}, &pretenceError{a.RobotID, fmt.Sprintf("the payload says it is from %.80q", s.RobotName)}
	}
	if s.TaskUID != "" && s.TaskUID != a.TaskUID {
		return report{}, fmt.Errorf("the payload says it is about %.80q", s.TaskUID)
	}
	r := report{robot: a.RobotID, uid: types.UID(a.TaskUID), attempt: s.Attempt, Status: s.Bounded()}
	if s.Attempt <= 0 {
		uid, attempt := wire.SplitAttemptUID(a.TaskUID)
		r.uid, r.attempt, r.document = types.UID(uid), attempt, true
	}
	return r, nil
}

// answers notes that a robot answers what is dispatched to it.
func (b *Bridge) answers(robotID string) {
	if b.view.robot(robotID) == nil {
		return
	}
	was := b.robots.get(robotID)
	b.robots.change(robotID, true, func(w *word) {
		w.hear(b.now())
		w.deaf, w.answered = false, true
	})
	if was.deaf || !was.answered || was.gone != "" {
		b.robotQueue.Add(robotID)
	}
}

// overdue notes that a robot has not answered a dispatch although it lives.
func (b *Bridge) overdue(o overdue) {
	w := b.robots.get(o.robot)
	lives := w.gone == "" && w.heard.After(o.since.Add(b.cfg.DeafAfter/2))
	if w.deaf || !lives || b.now().Sub(o.since) < b.cfg.DeafAfter {
		return
	}
	b.robots.change(o.robot, true, func(w *word) { w.deaf, w.answered = true, false })
	b.robotQueue.Add(o.robot)
}

// malformed counts what cannot be understood, and logs it once a minute a
// robot.
func (b *Bridge) malformed(robotID, kind string, err error) {
	pretence, pretends := errors.AsType[*pretenceError](err)
	if pretends {
		robotID = pretence.robot
		b.drop(wire.Kind(kind), "pretence")
	} else {
		b.drop(wire.Kind(kind), "malformed")
	}
	robotID = b.knownID(robotID)
	if b.complaints.allow(robotID, b.now()) {
		if r := b.view.robot(robotID); pretends && r != nil {
			b.warn(r, "Pretence", "A message was refused: "+err.Error())
		}
		b.log.Info("dropped a message that makes no sense", "robot", robotID, "kind", kind, "reason", err.Error())
	}
}

func (b *Bridge) drop(kind wire.Kind, reason string) {
	b.m.dropped.WithLabelValues(string(kind), reason).Inc()
}

// complainEvery is the time between two log lines about one robot.
const complainEvery = time.Minute
