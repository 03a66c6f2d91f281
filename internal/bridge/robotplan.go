package bridge

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
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wire"
)

// The answers to a registration. The first is also the message of a Robot that
// the manager has not looked at yet.
const (
	messageWaiting  = "Registration received, waiting for approval"
	messageAccepted = "Registration successful"
)

// robotSteps is what follows from a robot's last word.
type robotSteps struct {
	// create the object: the robot has none.
	create bool
	// labels of the robot. Nil: as they are.
	labels *labels
	// status to write. Nil: as it is.
	status *robotv1.RobotStatus
	// answer to the robot's registration. Nil: not yet, or it does not wait.
	answer *wire.Response
	// warning for people that the robot answers no dispatch.
	warning bool
}

// planRobot decides what to write and to answer. Nil r: the robot has no
// object. offlineAfter is the silence after which a robot is offline.
func planRobot(now time.Time, id string, w word, r *robotv1.Robot, offlineAfter time.Duration) robotSteps {
	if r == nil {
		return robotSteps{create: w.waits}
	}
	var s robotSteps
	if was := labelsOf(r); !w.registered.IsZero() { // with a heartbeat it says nothing of them
		if now := was.reported(w.labels); !now.equal(was) {
			s.labels = &now
		}
	}
	next := nextRobotStatus(r.Status, w, offlineAfter)
	if worthWriting(r.Status, *next, w) || heartbeatDue(now, id, r.Status, w, offlineAfter) {
		s.status = next
		s.warning = meta.IsStatusConditionFalse(next.Conditions, robotv1.ConditionResponsive) &&
			!meta.IsStatusConditionFalse(r.Status.Conditions, robotv1.ConditionResponsive)
	}
	if w.waits && !r.Revoked() && lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOnline {
		s.answer = &wire.Response{Success: true, Message: messageAccepted, RobotID: id}
	}
	return s
}

// nextRobotStatus is the status that says all that the word does.
func nextRobotStatus(now robotv1.RobotStatus, w word, offlineAfter time.Duration) *robotv1.RobotStatus {
	next := now.DeepCopy()
	if next.Phase == "" && !w.registered.IsZero() {
		next.Phase, next.Message = string(lifecycle.RobotPending), messageWaiting
	}
	if w.device != nil {
		next.DeviceInfo = deviceStatus(w.device)
	}
	if !w.registered.IsZero() {
		next.Agent = &robotv1.AgentInfo{Protocol: w.protocol, Version: w.version, Address: w.address}
	} else if next.Agent == nil && w.protocol != "" {
		next.Agent = &robotv1.AgentInfo{Protocol: w.protocol}
	}
	if heard := w.lastHeard(); !heard.IsZero() {
		next.LastHeartbeatTime = &metav1.MicroTime{Time: heard}
		next.AcknowledgedUntil = &metav1.MicroTime{Time: heard.Add(offlineAfter / 3)}
	}
	setConnected(next, w)
	setResponsive(next, w)
	setAuthenticated(next, w)
	return next
}

func setConnected(s *robotv1.RobotStatus, w word) {
	switch {
	case w.gone != "":
		mark(s, robotv1.ConditionConnected, metav1.ConditionFalse, w.gone, goneBecause[w.gone])
	case !w.heard.IsZero():
		mark(s, robotv1.ConditionConnected, metav1.ConditionTrue, robotv1.ReasonHeard, "The robot speaks to the server")
	}
}

// goneBecause says for people why a robot is out of contact.
var goneBecause = map[string]string{
	robotv1.ReasonLastWill:  "The robot's connection has broken",
	robotv1.ReasonSignedOff: "The robot's agent has said goodbye",
	robotv1.ReasonSilent:    "Nothing comes from the robot any more",
}

const messageDeaf = "The robot sends heartbeats but answers nothing that is dispatched to it; restart its agent"

// setResponsive writes the condition when it is False, or was.
func setResponsive(s *robotv1.RobotStatus, w word) {
	switch {
	case w.deaf:
		mark(s, robotv1.ConditionResponsive, metav1.ConditionFalse, "NoAnswer", messageDeaf)
	case w.answered && meta.FindStatusCondition(s.Conditions, robotv1.ConditionResponsive) != nil:
		mark(s, robotv1.ConditionResponsive, metav1.ConditionTrue, "Answers", "The robot answers what is dispatched to it")
	}
}

// setAuthenticated says of a robot that was heard whether it proves itself. What
// has a key that speaks for it is heard by that alone, where the broker is
// who it says.
func setAuthenticated(s *robotv1.RobotStatus, w word) {
	switch {
	case w.heard.IsZero() || s.Agent == nil:
	case w.plaintext:
		mark(s, robotv1.ConditionAuthenticated, metav1.ConditionFalse, robotv1.ReasonPlaintextBroker,
			"The server hears the robot through a broker without TLS: whoever is on the way there can speak for it; give the server an address mqtts://")
	case s.Identity != nil && s.Identity.Accepted != nil:
		mark(s, robotv1.ConditionAuthenticated, metav1.ConditionTrue, robotv1.ReasonCertificate, "The robot proves itself by a certificate")
	case s.Agent.Protocol == robotv1.ProtocolDocument:
		mark(s, robotv1.ConditionAuthenticated, metav1.ConditionFalse, robotv1.ReasonLegacy,
			"An agent of the document proves nothing: whoever reaches the broker can speak for this robot; run k8s4r-agent there")
	default:
		mark(s, robotv1.ConditionAuthenticated, metav1.ConditionFalse, robotv1.ReasonAnonymous,
			"The robot proves nothing: whoever reaches the broker can speak for it; let it join (k8s4r token create)")
	}
}

func mark(s *robotv1.RobotStatus, condition string, to metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: condition, Status: to, Reason: reason, Message: message})
}

// worthWriting tells whether a reader would act on the difference.
func worthWriting(was, next robotv1.RobotStatus, w word) bool {
	return was.Phase != next.Phase ||
		!equality.Semantic.DeepEqual(was.Agent, next.Agent) ||
		!sameConditions(was.Conditions, next.Conditions) ||
		!equality.Semantic.DeepEqual(steady(was.DeviceInfo), steady(next.DeviceInfo)) ||
		w.beats > 0 && !acknowledges(was, w.heard)
}

// acknowledges tells whether a heartbeat of that time may be acknowledged. A
// robot that fences itself counts from the last one that was, and the manager
// from what is written here; an acknowledgement beyond that would let a
// replacement start while the robot still holds the task to be its own.
func acknowledges(s robotv1.RobotStatus, heard time.Time) bool {
	return s.AcknowledgedUntil != nil && !heard.After(s.AcknowledgedUntil.Time)
}

func sameConditions(a, b []metav1.Condition) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// heartbeatDue tells whether the time of the last heartbeat is to be written. A
// robot that is not held to be in contact is written at once, so that the
// manager sees that it is back. What is written may be the last for long: so it
// is never older than a third of offlineAfter if the robot has been heard since.
// Else a robot that falls silent would be offline too early, and what was heard
// before would then look like its return.
func heartbeatDue(now time.Time, id string, was robotv1.RobotStatus, w word, offlineAfter time.Duration) bool {
	if w.heard.IsZero() || w.gone != "" {
		return false
	}
	if was.LastHeartbeatTime == nil {
		return true
	}
	written := was.LastHeartbeatTime.Time
	newer := w.lastHeard().Sub(written)
	switch p := lifecycle.ParseRobotPhase(was.Phase); {
	case newer < 0:
		return true // by a clock that was ahead of ours
	case p == lifecycle.RobotOffline, p == lifecycle.RobotUnknown:
		return newer >= time.Second
	case now.Sub(written) >= offlineAfter/3:
		return newer > 0
	}
	return newer >= heartbeatPeriod(id, offlineAfter)
}

// heartbeatPeriod is the least time between two writes of a steady robot's
// heartbeat: one to two ninths of offlineAfter by the robot's name, so that robots that
// came together do not all write together, and so that one heartbeat more
// still falls within the third.
func heartbeatPeriod(id string, offlineAfter time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	ninth := offlineAfter / 9
	return ninth + time.Duration(uint64(ninth)*uint64(h.Sum32()%1024)/1024)
}

// maxLabels bounds spec.labels, as the kind does.
const maxLabels = 64

// annotationOwnLabels has, in JSON, the labels in spec.labels that the robot gave
// itself, as it said them. It is written in one with them.
const annotationOwnLabels = "robot.k8s4r.io/own-labels"

// labels of a robot: all, and those of them that it gave itself.
type labels struct{ all, own map[string]string }

func labelsOf(r *robotv1.Robot) labels {
	l := labels{all: r.Spec.Labels}
	if err := json.Unmarshal([]byte(r.Annotations[annotationOwnLabels]), &l.own); err != nil {
		l.own = nil // a person's labels are no one else's to take away
	}
	return l
}

// reported adds what the robot says of itself now to what a person has set, and
// takes away what it said before and does not say any more. A label that a person
// has given another value is the person's.
func (l labels) reported(said map[string]string) labels {
	next := labels{all: map[string]string{}, own: map[string]string{}}
	for k, v := range l.all {
		if own, is := l.own[k]; !is || own != v {
			next.all[k] = v
		}
	}
	for _, k := range slices.Sorted(maps.Keys(said)) {
		if _, there := next.all[k]; there || k == "" || len(k) > maxText || len(next.all) >= maxLabels {
			continue
		}
		v := cut(said[k])
		next.all[k], next.own[k] = v, v
	}
	return next
}

func (l labels) equal(o labels) bool { return maps.Equal(l.all, o.all) && maps.Equal(l.own, o.own) }

// write them down.
func (l labels) write(r *robotv1.Robot) {
	r.Spec.Labels = l.all
	if len(l.own) == 0 {
		delete(r.Annotations, annotationOwnLabels)
		return
	}
	text, _ := json.Marshal(l.own)
	metav1.SetMetaDataAnnotation(&r.ObjectMeta, annotationOwnLabels, string(text))
}

// newRobot is the object of a robot that registers for the first time, with the
// labels that its token gives it.
func newRobot(namespace, id string, given map[string]string, w word) *robotv1.Robot {
	r := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}, Spec: robotv1.RobotSpec{RobotID: id}}
	labels{all: given}.reported(w.labels).write(r)
	return r
}
