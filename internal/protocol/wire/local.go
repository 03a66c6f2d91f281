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
	// MaxMaintenanceID bounds Maintenance.ID, in bytes.
	MaxMaintenanceID = 64
	maxPerson        = 64 // bytes of the name of a user of the robot
	maxUID           = 64
	maxNamespace     = 63  // of Kubernetes
	maxName          = 253 // of Kubernetes
)

// WithinLimits returns the state within the limits of its parts. Tasks beyond MaxStoppedTasks, and those
// without a UID or a second time, are left out. A nil state stays nil.
func (s *LocalState) WithinLimits() *LocalState {
	if s == nil {
		return nil
	}
	out := &LocalState{}
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
