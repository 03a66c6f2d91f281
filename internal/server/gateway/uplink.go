package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/acl"
	traceparent "k8s4r.io/k8s4r/internal/protocol/trace"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// inbound is a message from a robot.
type inbound struct {
	wire.Address
	topic   string
	payload []byte
	trace   string // as in trace.Property; empty: none
}

// receive passes a message to its handler. It never blocks: the broker drops
// messages for a server that does not read.
func (g *Gateway) receive(topic string, payload []byte, trace string) {
	a, err := wire.ParseTopic(topic)
	if err != nil {
		g.dropMessage("", "topic", err)
		return
	}
	g.m.received.WithLabelValues(string(a.Kind)).Inc()
	if reached := g.checkLimits(a, len(payload)); reached != "" {
		g.m.countDropped(a.Kind, dropTooFast, 1)
		g.recordLimit(a.RobotID, reached)
		return
	}
	// An external broker may not know of the revocation.
	if g.objects.isRevoked(a.RobotID) {
		g.m.countDropped(a.Kind, dropRevoked, 1)
		return
	}
	if err := g.handleMessage(inbound{a, topic, payload, trace}); err != nil {
		g.dropMessage(a.RobotID, string(a.Kind), err)
	}
}

// checkLimits returns the limit that a message exceeds. Empty: none.
func (g *Gateway) checkLimits(a wire.Address, size int) (reached limitName) {
	id, now := g.knownID(a.RobotID), g.now()
	switch {
	case !g.limits.allowMessage(id, size, now):
		return limitMessages
	case id != "" && a.Kind == wire.KindRegister && !g.limits.registrations.Allow(id, now):
		return limitRegistrations
	}
	return ""
}

// knownID returns the ID of a robot that has an object, else the empty ID, so that
// clients cannot fill the memory with invented IDs.
func (g *Gateway) knownID(id string) string {
	if g.objects.robot(id) == nil {
		return ""
	}
	return id
}

func (g *Gateway) handleMessage(m inbound) error {
	switch m.Kind {
	case wire.KindRegister:
		return g.handleRegister(m)
	case wire.KindHeartbeat:
		return g.handleHeartbeat(m)
	default: // after the check
	}
	if err := g.checkAuthenticated(m.RobotID); err != nil {
		return err
	}
	switch m.Kind {
	case wire.KindPresence:
		return g.handlePresence(m)
	case wire.KindStatus:
		return g.handleStatus(m)
	case wire.KindLogs, wire.KindRuns:
		g.logs.addPiece(m)
	default: // the server itself sends the other kinds
	}
	return nil
}

// identifySender returns the robot that sent a message, and its protocol. The
// topic decides, because the broker has checked it; a payload that names another
// robot is an error.
func (g *Gateway) identifySender(m inbound, claimedID string) (id, protocol string, err error) {
	if m.Shared {
		return claimedID, robotv1.ProtocolV1, g.checkSharedSender(claimedID)
	}
	if err := m.checkClaimedID(claimedID); err != nil {
		return m.RobotID, "", err
	}
	if r := g.objects.robot(m.RobotID); !g.cfg.AllowAnonymous && (r == nil || !requiresCertificate(r)) {
		return m.RobotID, "", errAnonymous
	}
	return m.RobotID, robotv1.ProtocolV2, nil
}

// checkClaimedID returns an error if the robot that a payload names may not
// publish on the message's topic. An empty ID names the robot of the topic.
func (m inbound) checkClaimedID(claimedID string) error {
	if (acl.Client{Role: acl.Robot, RobotID: cmp.Or(claimedID, m.RobotID)}).CanPublish(m.topic, false) {
		return nil
	}
	return &impersonationError{m.RobotID, fmt.Sprintf("the payload names another robot, %.80q", claimedID)}
}

// checkAuthenticated refuses messages of a robot without a certificate, unless it
// is allowed without. The embedded broker checks the same, others may not.
func (g *Gateway) checkAuthenticated(id string) error {
	r := g.objects.robot(id)
	if g.cfg.AllowAnonymous || r != nil && requiresCertificate(r) || g.cfg.AllowLegacy && g.lastProtocol(id) == robotv1.ProtocolV1 {
		return nil
	}
	return errAnonymous
}

// errAnonymous refuses robots without a certificate.
var errAnonymous = errors.New("the robot has not joined; run its agent with --server and --token (k8s4r token create), or see --allow-anonymous-agents")

// errLegacy refuses legacy agents: each of them can act for every other.
var errLegacy = errors.New("legacy agents are not allowed; see --allow-legacy-agents")

// checkSharedSender refuses a message on a shared topic if legacy agents are not
// allowed, or if the robot has a certificate and so uses its own topics.
func (g *Gateway) checkSharedSender(claimedID string) error {
	if !g.cfg.AllowLegacy {
		return errLegacy
	}
	if err := wire.ValidateRobotID(claimedID); err != nil {
		return err
	}
	if r := g.objects.robot(claimedID); r != nil && requiresCertificate(r) {
		return &impersonationError{claimedID, "a client without a certificate used a shared topic as this robot, which has one"}
	}
	return nil
}

// requiresCertificate reports whether messages of the robot need its certificate.
func requiresCertificate(r *robotv1.Robot) bool {
	return r.IsRevoked() || r.Status.Identity != nil && r.Status.Identity.Accepted != nil
}

// impersonationError refuses a message that was sent in the name of another robot.
type impersonationError struct{ robot, message string }

func (e *impersonationError) Error() string { return e.message }

func (g *Gateway) handleRegister(m inbound) error {
	r, err := wire.Decode[wire.Register](m.payload)
	if err != nil {
		g.rejectRegistration(m.RobotID, "Registration refused: "+err.Error())
		return err
	}
	id, protocol, err := g.identifySender(m, r.RobotID)
	if err != nil {
		g.rejectRegistration(m.RobotID, "Registration refused: "+err.Error())
		return err
	}
	return g.registerRobot(id, protocol, r)
}

func (g *Gateway) registerRobot(id, protocol string, r wire.Register) error {
	known := g.objects.robot(id)
	if !g.robots.updateState(id, known != nil, func(w *robotState) { w.recordRegistration(g.now(), protocol, r) }) {
		return errTooManyPending
	}
	if known != nil && !g.needsToken(g.robots.stateOf(id)) {
		g.sendAll(id, protocol)
	}
	g.robotQueue.Add(id)
	g.enqueueAgent(id)
	return nil
}

// sendAll sends a registered robot its task list and dispatches. It precedes the
// response, after which a legacy agent subscribes: it would run the tasks of an
// older retained list.
func (g *Gateway) sendAll(id, protocol string) {
	g.taskLists.resendList(id)
	g.taskLists.sendRegistrationList(id)
	g.downlink.onRobotRegistered(id, g.objects.tasksOn(id), protocol == robotv1.ProtocolV1)
}

// rejectRegistration sends a robot the reason. Messages on shared topics get no
// response, because their sender is unknown.
func (g *Gateway) rejectRegistration(robotID, message string) {
	if robotID != "" {
		g.sendMessage(robotID, wire.KindResponse, wire.Response{Message: message, RobotID: robotID})
	}
}

func (g *Gateway) handleHeartbeat(m inbound) error {
	h, err := wire.Decode[wire.Heartbeat](m.payload)
	if err != nil {
		return err
	}
	id, protocol, err := g.identifySender(m, h.RobotID)
	if err != nil {
		return err
	}
	if h.Journal != nil && protocol == robotv1.ProtocolV2 {
		return g.handleJournal(id, *h.Journal)
	}
	r := g.objects.robot(id)
	switch {
	case r == nil && protocol == robotv1.ProtocolV1:
		return g.registerRobot(id, protocol, wire.Register{RobotID: id, Token: h.Token, DeviceInfo: h.DeviceInfo})
	case r == nil:
		g.rejectRegistration(id, "unknown robot; register again")
		return nil
	}
	g.recordHeartbeat(id, protocol, h, r)
	return nil
}

// recordHeartbeat remembers the heartbeat of a known robot. Most heartbeats are
// acknowledged without a write; one write of a slice covers those of many robots for a while.
func (g *Gateway) recordHeartbeat(id, protocol string, h wire.Heartbeat, r *robotv1.Robot) {
	was := g.lastProtocol(id)
	g.robots.updateState(id, true, func(w *robotState) { w.recordHeartbeat(g.now(), protocol, h) })
	if is := g.lastProtocol(id); is != was {
		g.downlink.onProtocolKnown(id)
	}
	if protocol == robotv1.ProtocolV1 {
		g.downlink.onLegacyHeartbeat(id)
	}
	g.assignSlice(r)
	g.ackHeartbeat(id, r)
	g.recordUsages(id, h.Usage)
	w := g.stateOf(id)
	if w.awaitsAck() && !w.isCovered {
		g.requestSliceWrite(id)
	}
	g.enqueueAgent(id)
	if s := planRobot(g.now(), id, w, r, g.statusPeriod(id)); s.status != nil || s.retryAfter > 0 || s.answer != nil {
		g.robotQueue.Add(id)
	}
}

// ackHeartbeat acknowledges the robot's last heartbeat if its slice and status cover it.
func (g *Gateway) ackHeartbeat(id string, r *robotv1.Robot) {
	if w := g.stateOf(id); w.awaitsAck() && w.coversHeartbeat(r.Status) {
		g.robots.updateState(id, true, func(now *robotState) { now.ackedSeq = w.heartbeatSeq })
		isPending := w.deviceWait(g.now()) > 0 && !equalDevices(r.Status.DeviceInfo, deviceStatus(w.device))
		g.acks.ackHeartbeat(id, w.heartbeatSeq, isPending)
	}
}

func (g *Gateway) handlePresence(m inbound) error {
	p, err := wire.Decode[wire.Presence](m.payload)
	if err != nil {
		return err
	}
	if g.objects.robot(m.RobotID) == nil {
		return nil // there is no object to update
	}
	g.robots.updateState(m.RobotID, true, func(w *robotState) { w.recordPresence(g.now(), p) })
	g.checks.schedule(m.RobotID, g.now()) // a last will may have to be confirmed
	g.robotQueue.Add(m.RobotID)
	return nil
}

func (g *Gateway) handleStatus(m inbound) error {
	s, err := wire.Decode[wire.Status](m.payload)
	if err != nil {
		return err
	}
	r, err := newReport(m, s, g.lastProtocol(m.RobotID))
	if err != nil {
		return err
	}
	r.receivedAt, r.size = g.now(), len(m.payload)
	r.trace, _ = traceparent.Parse(m.trace)
	isFirst := g.downlink.recordAnswer(r)
	g.taskLists.recordEnd(r)
	g.recordAnswer(m.RobotID)
	g.requestSecrets(r)
	if r.State == wire.ReportPending {
		g.handleAccepted(r, isFirst)
		return nil
	}
	if !g.reports.addReport(r) {
		g.m.countDropped(wire.KindStatus, dropQueueFull, 1)
	}
	return nil
}

// errNoAttempt drops a report of an agent with protocol v2 that could be about any attempt.
var errNoAttempt = errors.New("attempt: must be at least 1 in a report of an agent with protocol v2")

// newReport combines topic and payload. Agents with protocol v2 send the attempt;
// for others it is a part of the task UID.
func newReport(m inbound, s wire.Status, protocol string) (report, error) {
	if err := m.checkClaimedID(s.RobotName); err != nil {
		return report{}, err
	}
	if s.TaskUID != "" && s.TaskUID != m.TaskUID {
		return report{}, fmt.Errorf("taskUid: %.80q does not match the topic", s.TaskUID)
	}
	r := report{robot: m.RobotID, uid: types.UID(m.TaskUID), attempt: s.Attempt, Status: s.WithinLimits()}
	if s.Attempt <= 0 && protocol == robotv1.ProtocolV2 {
		return report{}, errNoAttempt
	}
	if s.Attempt <= 0 {
		uid, attempt := wire.SplitAttemptUID(m.TaskUID)
		r.uid, r.attempt, r.legacy = types.UID(uid), attempt, true
		r.Run, r.Runs, r.NextRunAt = 0, nil, nil // of another attempt, if at all
	}
	return r, nil
}

// recordAnswer remembers that a robot reports about its tasks.
func (g *Gateway) recordAnswer(robotID string) {
	if g.objects.robot(robotID) == nil {
		return
	}
	was := g.robots.stateOf(robotID)
	g.robots.updateState(robotID, true, func(w *robotState) {
		w.recordContact(g.now())
		w.unresponsive, w.hasAnswered = false, true
	})
	if was.unresponsive || !was.hasAnswered || was.disconnectReason != "" {
		g.robotQueue.Add(robotID)
	}
}

// recordOverdue handles a dispatch that a robot has not answered for long, although it sends
// heartbeats: the robot is unresponsive, and after the dispatch timeout it is lost for the task.
func (g *Gateway) recordOverdue(o overdueDispatch) {
	w, silence := g.robots.stateOf(o.robot), g.now().Sub(o.since)
	isTimedOut := g.isDispatchTimedOut(o, w, silence)
	isConnected := w.disconnectReason == "" && w.lastSeen.After(o.since.Add(g.cfg.UnresponsiveAfter/2))
	if !w.unresponsive && (isTimedOut || isConnected && silence >= g.cfg.UnresponsiveAfter) {
		g.robots.updateState(o.robot, true, func(w *robotState) { w.unresponsive, w.hasAnswered = true, false })
		g.robotQueue.Add(o.robot)
	}
	if isTimedOut {
		g.reportDispatchTimeout(o)
	}
}

// dropMessage counts a message that cannot be handled, and logs the reason, at
// most once a minute for each robot.
func (g *Gateway) dropMessage(robotID, kind string, err error) {
	impersonation, impersonates := errors.AsType[*impersonationError](err)
	if impersonates {
		robotID = impersonation.robot
		g.m.countDropped(wire.Kind(kind), dropImpersonation, 1)
	} else {
		g.m.countDropped(wire.Kind(kind), dropMalformed, 1)
	}
	robotID = g.knownID(robotID)
	if g.rateLimitedLog.Allow(robotID, g.now()) {
		if r := g.objects.robot(robotID); impersonates && r != nil {
			g.warn(r, "ImpersonationRefused", "Refused a message: "+err.Error())
		}
		g.log.Info("dropped a message", "robot", robotID, "kind", kind, "reason", err.Error())
	}
}

// logInterval is the time between two log lines about one robot.
const logInterval = time.Minute
