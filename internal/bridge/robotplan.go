package bridge

import (
	"hash/fnv"
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
	// labels for spec.labels. Nil: as they are.
	labels map[string]string
	// status to write. Nil: as it is.
	status *robotv1.RobotStatus
	// answer to the robot's registration. Nil: not yet, or it does not wait.
	answer *wire.Response
	// warning for people that the robot answers no dispatch.
	warning bool
}

// planRobot decides what to write and to answer. Nil r: the robot has no
// object. offlineAfter is the silence after which a robot is offline.
func planRobot(id string, w word, r *robotv1.Robot, offlineAfter time.Duration) robotSteps {
	if r == nil {
		return robotSteps{create: w.waits}
	}
	var s robotSteps
	s.labels = filledLabels(r.Spec.Labels, w.labels)
	next := nextRobotStatus(r.Status, w, offlineAfter)
	if worthWriting(id, r.Status, *next, w, offlineAfter) {
		s.status = next
		s.warning = meta.IsStatusConditionFalse(next.Conditions, robotv1.ConditionResponsive) &&
			!meta.IsStatusConditionFalse(r.Status.Conditions, robotv1.ConditionResponsive)
	}
	if w.waits && lifecycle.ParseRobotPhase(r.Status.Phase) == lifecycle.RobotOnline {
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
	if !w.heard.IsZero() {
		heard := w.heard.UTC().Truncate(time.Microsecond)
		next.LastHeartbeatTime = &metav1.MicroTime{Time: heard}
		next.AcknowledgedUntil = &metav1.MicroTime{Time: heard.Add(offlineAfter / 3)}
	}
	setConnected(next, w)
	setResponsive(next, w)
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

func mark(s *robotv1.RobotStatus, condition string, to metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: condition, Status: to, Reason: reason, Message: message})
}

// worthWriting tells whether a reader would act on the difference, or the
// time of the last heartbeat is due. A steady robot costs one write in a
// third of offlineAfter at the most.
func worthWriting(id string, now, next robotv1.RobotStatus, w word, offlineAfter time.Duration) bool {
	return now.Phase != next.Phase ||
		!equality.Semantic.DeepEqual(now.Agent, next.Agent) ||
		!sameConditions(now.Conditions, next.Conditions) ||
		!equality.Semantic.DeepEqual(steady(now.DeviceInfo), steady(next.DeviceInfo)) ||
		heartbeatDue(id, now, w, offlineAfter) || w.beats > 0 && !acknowledges(now, w.heard)
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

// heartbeatDue tells whether the time of the last heartbeat is to be written.
// A robot that is not held to be in contact is written at once, so that the
// manager sees that it is back.
func heartbeatDue(id string, now robotv1.RobotStatus, w word, offlineAfter time.Duration) bool {
	if w.heard.IsZero() || w.gone != "" {
		return false
	}
	if now.LastHeartbeatTime == nil {
		return true
	}
	newer := w.heard.Sub(now.LastHeartbeatTime.Time)
	if newer < 0 {
		return true // by a clock that was ahead of ours
	}
	if p := lifecycle.ParseRobotPhase(now.Phase); p == lifecycle.RobotOffline || p == lifecycle.RobotUnknown {
		return newer >= time.Second
	}
	return newer >= heartbeatPeriod(id, offlineAfter)
}

// heartbeatPeriod is the time between two writes of a steady robot's heartbeat:
// one to two ninths of offlineAfter by the robot's name, so that robots that
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

// filledLabels adds what the robot says of itself to what a person has set.
// It returns nil when there is nothing to add.
func filledLabels(set, said map[string]string) map[string]string {
	var filled map[string]string
	for k, v := range said {
		if _, there := set[k]; there || k == "" || len(k) > maxText {
			continue
		}
		if filled == nil {
			filled = make(map[string]string, len(set)+len(said))
			for k, v := range set {
				filled[k] = v
			}
		}
		if len(filled) < maxLabels {
			filled[k] = cut(v)
		}
	}
	if len(filled) == len(set) {
		return nil
	}
	return filled
}

// newRobot is the object of a robot that registers for the first time.
func newRobot(namespace, id string, w word) *robotv1.Robot {
	return &robotv1.Robot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id},
		Spec:       robotv1.RobotSpec{RobotID: id, Labels: filledLabels(nil, w.labels)},
	}
}
