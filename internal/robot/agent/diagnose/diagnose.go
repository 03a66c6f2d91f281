// Package diagnose checks whether an agent can run on this robot, and proposes remedies. It
// leaves nothing behind and does not disturb a running agent.
package diagnose

import (
	"context"
	"net/url"
	"slices"

	"k8s4r.io/k8s4r/internal/robot/isolation"
)

// Level is the severity of a finding.
type Level string

// The levels, from good to bad.
const (
	OK   Level = "ok"
	Warn Level = "warn" // the agent works with restrictions
	Fail Level = "fail" // the agent cannot work
)

var levels = []Level{OK, Warn, Fail}

// Finding is the result of one check.
type Finding struct {
	Level Level `json:"level"`
	// Check is the name of the check.
	Check string `json:"check"`
	// Message is the result as a sentence.
	Message string `json:"message"`
	// Remedy is what the user can do. It is empty if nothing needs to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Subject is the agent to check.
type Subject struct {
	RobotID  string
	StateDir string
	// TaskDirs are the directories in StateDir that tasks write to.
	TaskDirs []string
	Broker   *url.URL
	// Drivers are the drivers that the robot offers; Engine is the socket of the Docker engine.
	Drivers []string
	Engine  string
	// TaskUser is the user of tasks that name none.
	TaskUser string
	// BatteryBackedClock is set if the robot is declared to have such a hardware clock.
	BatteryBackedClock bool
	// Isolation is what a running agent has found. If nil, it is probed here.
	Isolation *isolation.Host
}

// Examine runs all checks.
func Examine(ctx context.Context, s Subject) []Finding {
	return slices.Concat(
		checkKernel(), checkShims(), checkStateDir(s.StateDir), checkTaskDirs(s), checkDrivers(s), checkIsolation(s), checkTaskUser(s), checkClock(), checkDeclaredClock(s),
		checkBroker(ctx, s), checkCertificates(), checkService(ctx),
	)
}

// Worst returns the worst level of the findings.
func Worst(all []Finding) Level {
	worst := 0
	for _, f := range all {
		worst = max(worst, slices.Index(levels, f.Level))
	}
	return levels[worst]
}

func okFinding(check, message string) Finding {
	return Finding{Level: OK, Check: check, Message: message}
}

func newFinding(l Level, check, message, remedy string) Finding {
	return Finding{l, check, message, remedy}
}
