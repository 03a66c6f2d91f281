package wire

import (
	"strings"
	"time"
	"unicode"
)

// LocalState is what people at the robot have decided. The robot keeps it across reboots.
type LocalState struct {
	// StoppedTasks are tasks that the robot does not run until a person there restarts them, at most
	// MaxStoppedTasks.
	StoppedTasks []StoppedTask `json:"stoppedTasks,omitempty"`
	// Maintenance lets nothing start on the robot. If nil, there is none.
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// Holds keep tasks from being interrupted by orders that can wait (Interruption), at most MaxHolds.
	Holds []Hold `json:"holds,omitempty"`
}

// Hold keeps a task, or all tasks of the robot, from being interrupted. Other orders to stop them act.
type Hold struct {
	// ID is different for each hold of a robot.
	ID string `json:"id"`
	// UID of the only task that is held. If empty, all tasks are.
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// By is the user of the robot, such as "alice (uid 1000)".
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Since is by the robot's clock.
	Since time.Time `json:"since"`
}

// StoppedTask is a task that a person at the robot has stopped.
type StoppedTask struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Attempt that was stopped.
	Attempt int32 `json:"attempt,omitempty"`
	// By is the user of the robot, such as "alice (uid 1000)".
	By string `json:"by"`
	// Since is by the robot's clock.
	Since time.Time `json:"since"`
}

// Maintenance is a period in which nothing starts on the robot. What runs goes on.
type Maintenance struct {
	// ID is different for each maintenance of a robot.
	ID string `json:"id"`
	// By is the user of the robot, such as "alice (uid 1000)".
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Since is by the robot's clock.
	Since time.Time `json:"since"`
}

const (
	// MaxStoppedTasks bounds LocalState.StoppedTasks, so that a registration fits into a message.
	MaxStoppedTasks = 256
	// MaxMaintenanceReason bounds Maintenance.Reason, in bytes.
	MaxMaintenanceReason = 256
	// MaxLocalState bounds a LocalState as JSON, in bytes, so that a registration fits into a message.
	MaxLocalState = 192 << 10
	// MaxHolds bounds LocalState.Holds.
	MaxHolds = 64
	// MaxHoldReason bounds Hold.Reason, in bytes.
	MaxHoldReason = 256
	// MaxMaintenanceID bounds Maintenance.ID, in bytes.
	MaxMaintenanceID = 64
	maxHoldID        = 64
	maxPerson        = 64 // bytes of the name of a user of the robot
	maxUID           = 64
	maxNamespace     = 63  // of Kubernetes
	maxName          = 253 // of Kubernetes
)

// WithinLimits returns the state within the limits of its parts. Tasks beyond MaxStoppedTasks, and those
// without a UID or a second time, are left out, and so are such holds. A nil state stays nil.
func (s *LocalState) WithinLimits() *LocalState {
	if s == nil {
		return nil
	}
	out := &LocalState{Holds: boundHolds(s.Holds)}
	seen := map[string]bool{}
	for _, t := range s.StoppedTasks {
		t = t.withinLimits()
		if t.UID == "" || seen[t.UID] || len(out.StoppedTasks) == MaxStoppedTasks {
			continue
		}
		seen[t.UID] = true
		out.StoppedTasks = append(out.StoppedTasks, t)
	}
	if m := s.Maintenance; m != nil {
		out.Maintenance = &Maintenance{
			ID: TruncateText(m.ID, MaxMaintenanceID), By: cleanText(m.By, maxPerson), Reason: cleanText(m.Reason, MaxMaintenanceReason), Since: m.Since,
		}
	}
	return out
}

// boundHolds returns the holds within their limits, and none with the ID of another, or without one.
func boundHolds(all []Hold) (out []Hold) {
	seen := map[string]bool{}
	for _, h := range all {
		h = h.withinLimits()
		if h.ID == "" || seen[h.ID] || len(out) == MaxHolds {
			continue
		}
		seen[h.ID] = true
		out = append(out, h)
	}
	return out
}

func (h Hold) withinLimits() Hold {
	h.ID, h.UID = TruncateText(h.ID, maxHoldID), TruncateText(h.UID, maxUID)
	h.Namespace, h.Name = TruncateText(h.Namespace, maxNamespace), TruncateText(h.Name, maxName)
	h.By, h.Reason = cleanText(h.By, maxPerson), cleanText(h.Reason, MaxHoldReason)
	return h
}

func (t StoppedTask) withinLimits() StoppedTask {
	t.UID, t.By = TruncateText(t.UID, maxUID), cleanText(t.By, maxPerson)
	t.Namespace, t.Name, t.Attempt = TruncateText(t.Namespace, maxNamespace), TruncateText(t.Name, maxName), max(t.Attempt, 0)
	return t
}

// cleanText returns a text of people without control characters, which terminals obey, and at most n bytes
// of it.
func cleanText(s string, n int) string {
	return TruncateText(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return -1
		}
		return c
	}, s), n)
}

// FindStopped returns the entry of a task that a person has stopped, or nil.
func (s *LocalState) FindStopped(uid string) *StoppedTask {
	if s == nil {
		return nil
	}
	for i := range s.StoppedTasks {
		if s.StoppedTasks[i].UID == uid {
			return &s.StoppedTasks[i]
		}
	}
	return nil
}

// FindHold returns the hold of the whole robot, or that of a task, or nil.
func (s *LocalState) FindHold(uid string) *Hold {
	if s == nil {
		return nil
	}
	for i := range s.Holds {
		if h := &s.Holds[i]; h.UID == "" || h.UID == uid {
			return h
		}
	}
	return nil
}
