package gateway

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Responses to a registration. The first is also the status message of a new Robot.
const (
	messageWaiting  = "Registration received, waiting for approval"
	messageAccepted = "Registration successful"
)

// robotActions is what planRobot decides to write and to send.
type robotActions struct {
	// create the Robot, which does not exist.
	create bool
	// labels to write. If nil, they are unchanged.
	labels *robotLabels
	// status to write. If nil, it is unchanged.
	status *robotv1.RobotStatus
	// answer to the registration. If nil, none is due.
	answer *wire.Response
	// warning: the robot has become unresponsive.
	warning bool
	// retryAfter is when a change of the device may be written that must wait for now. Zero:
	// there is none.
	retryAfter time.Duration
}

// changesRobot reports whether there is anything to write to an existing Robot.
func (s robotActions) changesRobot() bool { return !s.create && (s.labels != nil || s.status != nil) }

// planRobot decides what to write and to answer. R is nil if the Robot does not exist.
// StatusPeriod is the time between two writes of a status that only change its last heartbeat.
func planRobot(now time.Time, id string, w robotState, r *robotv1.Robot, statusPeriod time.Duration) robotActions {
	if r == nil {
		return robotActions{create: w.awaitsResponse}
	}
	var s robotActions
	if was := labelsOf(r); !w.registered.IsZero() { // a heartbeat reports no labels
		if now := was.mergeReported(w.labels); !now.equal(was) {
			s.labels = &now
		}
	}
	next := nextRobotStatus(r.Status, w)
	if wait := w.deviceWait(now); wait > 0 {
		if !equalDevices(r.Status.DeviceInfo, next.DeviceInfo) {
			s.retryAfter = wait
		}
		next.DeviceInfo = r.Status.DeviceInfo
	}
	if needsWrite(r.Status, *next) || isHeartbeatDue(r.Status, w, statusPeriod) {
		s.status = next
		s.warning = meta.IsStatusConditionFalse(next.Conditions, robotv1.ConditionResponsive) &&
			!meta.IsStatusConditionFalse(r.Status.Conditions, robotv1.ConditionResponsive)
	}
	if w.awaitsAnswer(now, r) && !r.IsRevoked() && lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOnline {
		s.answer = &wire.Response{Success: true, Message: messageAccepted, RobotID: id, UnlockMaintenance: unlockOf(r)}
	}
	return s
}

// nextRobotStatus returns the status with everything that the robot has reported.
func nextRobotStatus(now robotv1.RobotStatus, w robotState) *robotv1.RobotStatus {
	next := now.DeepCopy()
	if next.Phase == "" && !w.registered.IsZero() {
		next.Phase, next.Message = string(lifecycle.RobotPending), messageWaiting
	}
	if w.device != nil {
		next.DeviceInfo = deviceStatus(w.device)
	}
	if !w.registered.IsZero() {
		next.Agent = agentInfo(w)
		next.Policy = policyStatus(w.policy)
		setLocal(next, w.local)
		setPrefetch(next, w.prefetch, w.registered)
	} else if next.Agent == nil && w.protocol != "" {
		next.Agent = &robotv1.AgentInfo{Protocol: w.protocol}
	}
	if lastSeen := w.storedLastSeen(); !lastSeen.IsZero() {
		next.LastHeartbeatTime = &metav1.MicroTime{Time: lastSeen}
		next.AcknowledgedUntil = robotv1.AcknowledgedBySlice(lastSeen)
	}
	if w.slice != "" && (now.HeartbeatSlice != "" || !w.lastSeen.IsZero()) {
		// If no slice was named, a former server may have acknowledged heartbeats by this status, and the
		// entry may be older: the manager counts by it only after a message to this server.
		next.HeartbeatSlice = w.slice
	}
	setConnected(next, w)
	setResponsive(next, w)
	setDiskConditions(next, w)
	setLabelsAccepted(next, w)
	setAuthenticated(next, w)
	return next
}

// agentInfo returns what an agent has registered about itself.
func agentInfo(w robotState) *robotv1.AgentInfo {
	return &robotv1.AgentInfo{
		Protocol: w.protocol, Version: w.version, Address: w.address,
		AnswersDispatches: w.answersDispatches, RunsArrays: w.runsArrays, RestartsTasks: w.restartsTasks,
		RefusesInterruptions: w.refusesInterruptions, Prefetches: w.prefetches,
		UpdatesItself: w.updatesItself, Update: agentUpdateStatus(w.agentUpdate),
	}
}

func setConnected(s *robotv1.RobotStatus, w robotState) {
	switch {
	case w.disconnectReason != "":
		setCondition(s, robotv1.ConditionConnected, metav1.ConditionFalse, w.disconnectReason, disconnectMessages[w.disconnectReason])
	case !w.lastSeen.IsZero():
		setCondition(s, robotv1.ConditionConnected, metav1.ConditionTrue, robotv1.ReasonHeartbeatReceived, "The server receives messages of the robot")
	}
}

// disconnectMessages explain the reasons of condition Connected.
var disconnectMessages = map[string]string{
	robotv1.ReasonLastWill:     "The robot's MQTT connection broke",
	robotv1.ReasonDisconnected: "The robot's agent has disconnected",
	robotv1.ReasonUnresponsive: "The server receives no messages of the robot",
}

const messageUnresponsive = "The robot sends heartbeats but does not answer dispatches; restart its agent"

// setResponsive sets the condition if it is False, or exists. An unresponsive robot gets no new
// tasks, so it could not prove that it answers again: it gets another chance when its agent
// registers again, and from a new server.
func setResponsive(s *robotv1.RobotStatus, w robotState) {
	was := meta.FindStatusCondition(s.Conditions, robotv1.ConditionResponsive)
	switch {
	case w.unresponsive:
		setCondition(s, robotv1.ConditionResponsive, metav1.ConditionFalse, robotv1.ReasonDispatchUnanswered, messageUnresponsive)
	case was == nil:
	case w.hasAnswered:
		setCondition(s, robotv1.ConditionResponsive, metav1.ConditionTrue, "DispatchAnswered", "The robot answers dispatches")
	case was.Status == metav1.ConditionFalse && !w.lastSeen.IsZero():
		setCondition(s, robotv1.ConditionResponsive, metav1.ConditionTrue, "NotTested", "The robot was not sent a dispatch since its agent registered or the server started")
	}
}

// setDiskConditions sets the conditions about the agent's disk, each if it is True, or exists.
func setDiskConditions(s *robotv1.RobotStatus, w robotState) {
	if w.heartbeatSeq == 0 {
		return // no heartbeat yet, or a legacy agent
	}
	setProblem(s, robotv1.ConditionDiskPressure, w.diskPressure, "DiskAlmostFull", "DiskHasRoom",
		"The disk of the agent's state directory is almost full; free some space, or lower the ephemeralDisk and the number of kept logs")
	setProblem(s, robotv1.ConditionJournalReadOnly, w.journalReadOnly, "JournalNotWritable", "JournalWritable",
		"The agent cannot write its journal, so it accepts no tasks; check the disk and the file system of its state directory")
}

// setProblem sets a condition that is True while there is a problem.
func setProblem(s *robotv1.RobotStatus, condition string, is bool, reason, reasonNot, message string) {
	switch {
	case is:
		setCondition(s, condition, metav1.ConditionTrue, reason, message)
	case meta.FindStatusCondition(s.Conditions, condition) != nil:
		setCondition(s, condition, metav1.ConditionFalse, reasonNot, "")
	}
}

// setLabelsAccepted sets the condition after a registration if it is False, or exists.
func setLabelsAccepted(s *robotv1.RobotStatus, w robotState) {
	if w.registered.IsZero() {
		return
	}
	switch err := validateLabels(w.labels); {
	case err != nil:
		setCondition(s, robotv1.ConditionLabelsAccepted, metav1.ConditionFalse, robotv1.ReasonLabelInvalid,
			"The robot reports labels that are ignored: "+err.Error()+"; correct --label of its agent")
	case meta.FindStatusCondition(s.Conditions, robotv1.ConditionLabelsAccepted) != nil:
		setCondition(s, robotv1.ConditionLabelsAccepted, metav1.ConditionTrue, robotv1.ReasonLabelsValid, "All labels that the robot reports are used")
	}
}

// validateLabels returns the error of the first label, by name, with another syntax.
func validateLabels(labels map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if err := wire.ValidateLabel(k, labels[k]); err != nil {
			return err
		}
	}
	return nil
}

// setAuthenticated sets the condition of a robot that has sent a message. A robot with
// an accepted key is authenticated, unless the broker has no TLS.
func setAuthenticated(s *robotv1.RobotStatus, w robotState) {
	switch {
	case w.lastSeen.IsZero() || s.Agent == nil:
	case w.plaintext:
		setCondition(s, robotv1.ConditionAuthenticated, metav1.ConditionFalse, robotv1.ReasonPlaintextBroker,
			"The server reaches the broker without TLS: anyone on the network path can impersonate the robot; use an mqtts:// URL for the server")
	case s.Identity != nil && s.Identity.Accepted != nil:
		setCondition(s, robotv1.ConditionAuthenticated, metav1.ConditionTrue, robotv1.ReasonCertificate, "The robot is authenticated by a certificate")
	case s.Agent.Protocol == robotv1.ProtocolV1:
		setCondition(s, robotv1.ConditionAuthenticated, metav1.ConditionFalse, robotv1.ReasonLegacyAgent,
			"A legacy agent has no certificate: any client of the broker can impersonate the robot; replace it by k8s4r-agent")
	default:
		setCondition(s, robotv1.ConditionAuthenticated, metav1.ConditionFalse, robotv1.ReasonAnonymous,
			"The robot has no certificate: any client of the broker can impersonate it; let it join (k8s4r token create)")
	}
}

func setCondition(s *robotv1.RobotStatus, condition string, to metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: condition, Status: to, Reason: reason, Message: message})
}

// needsWrite reports whether the difference matters to readers.
func needsWrite(was, next robotv1.RobotStatus) bool {
	return was.Phase != next.Phase || was.HeartbeatSlice != next.HeartbeatSlice ||
		!equality.Semantic.DeepEqual(was.Agent, next.Agent) ||
		!equalPolicies(was.Policy, next.Policy) ||
		!equality.Semantic.DeepEqual(was.StoppedTasks, next.StoppedTasks) ||
		!equality.Semantic.DeepEqual(was.Maintenance, next.Maintenance) ||
		!equality.Semantic.DeepEqual(was.Holds, next.Holds) ||
		!equality.Semantic.DeepEqual(was.Prefetch, next.Prefetch) ||
		!equalConditions(was.Conditions, next.Conditions) ||
		!equalDevices(was.DeviceInfo, next.DeviceInfo)
}

// equalDevices reports whether devices differ in nothing that is worth a write.
func equalDevices(a, b *robotv1.DeviceInfo) bool {
	return equality.Semantic.DeepEqual(withoutUsage(a), withoutUsage(b))
}

func equalConditions(a, b []metav1.Condition) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// isHeartbeatDue reports whether lastHeartbeatTime is due to be written to the status. A robot that is
// not connected is written at once, as is one that may have gone. The heartbeats of the others are in
// their slices.
func isHeartbeatDue(was robotv1.RobotStatus, w robotState, statusPeriod time.Duration) bool {
	if w.lastSeen.IsZero() || w.disconnectReason != "" {
		return false
	}
	if was.LastHeartbeatTime == nil {
		return true
	}
	newer := w.storedLastSeen().Sub(was.LastHeartbeatTime.Time)
	switch p := lifecycle.ParseRobotPhase(was.Phase); {
	case newer < 0:
		return true // by a clock that was ahead of ours
	case !w.unconfirmedWill.IsZero():
		return newer > 0 // the manager counts from this write if the robot is gone
	case p == lifecycle.RobotOffline, p == lifecycle.RobotUnknown:
		return newer >= time.Second
	}
	return newer >= statusPeriod
}

// steadyStatusPeriod is the time between two writes of the status of a robot in which nothing changes
// but its heartbeats, less up to a fifth by the robot's name. With the writes of the slices, such a robot
// costs less than four writes an hour.
const steadyStatusPeriod = 20 * time.Minute

// statusPeriod returns the time between two writes of a status that only change its last heartbeat:
// 16 to 20 minutes. For a manager that does not read slices it is one to two ninths of offlineAfter,
// so that a robot that becomes silent is not offline too early. It depends on the robot's name, so
// that robots that came together do not all write together.
func statusPeriod(id string, offlineAfter time.Duration, readsSlices bool) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	least, most := steadyStatusPeriod*4/5, steadyStatusPeriod
	if !readsSlices {
		least, most = offlineAfter/9, 2*offlineAfter/9
	}
	return least + time.Duration(uint64(most-least)*uint64(h.Sum32()%1024)/1024)
}

// maxLabels bounds spec.labels, as the kind does.
const maxLabels = 64

// annotationReportedLabels has, in JSON, the labels in spec.labels that the robot has
// reported. Both are written together.
const annotationReportedLabels = "robot.k8s4r.io/reported-labels"

// robotLabels has all labels of a robot, and those that it has reported itself.
type robotLabels struct{ all, reported map[string]string }

func labelsOf(r *robotv1.Robot) robotLabels {
	l := robotLabels{all: r.Spec.Labels}
	if err := json.Unmarshal([]byte(r.Annotations[annotationReportedLabels]), &l.reported); err != nil {
		l.reported = nil // treat all labels as set by users
	}
	return l
}

// mergeReported adds the labels that the robot reports now, and removes those that it no
// longer reports. Labels that a user has set or changed stay. A robot could otherwise put
// commands into a value that a script contains, so invalid labels are ignored.
func (l robotLabels) mergeReported(nowReported map[string]string) robotLabels {
	next := robotLabels{all: map[string]string{}, reported: map[string]string{}}
	for k, v := range l.all {
		if own, is := l.reported[k]; !is || own != v {
			next.all[k] = v
		}
	}
	for _, k := range slices.Sorted(maps.Keys(nowReported)) {
		v := nowReported[k]
		if _, there := next.all[k]; there || wire.ValidateLabel(k, v) != nil || len(next.all) >= maxLabels {
			continue
		}
		next.all[k], next.reported[k] = v, v
	}
	return next
}

func (l robotLabels) equal(o robotLabels) bool {
	return maps.Equal(l.all, o.all) && maps.Equal(l.reported, o.reported)
}

func (l robotLabels) applyTo(r *robotv1.Robot) {
	r.Spec.Labels = l.all
	if len(l.reported) == 0 {
		delete(r.Annotations, annotationReportedLabels)
		return
	}
	text, _ := json.Marshal(l.reported)
	metav1.SetMetaDataAnnotation(&r.ObjectMeta, annotationReportedLabels, string(text))
}

// newRobot returns the Robot of a first registration, with the labels of its token.
func newRobot(namespace, id string, given map[string]string, w robotState) *robotv1.Robot {
	r := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}, Spec: robotv1.RobotSpec{RobotID: id}}
	robotLabels{all: given}.mergeReported(w.labels).applyTo(r)
	return r
}
