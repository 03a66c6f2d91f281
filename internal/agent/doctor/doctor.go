// Package doctor tells what a robot lacks to run an agent well, and how to get it.
// It leaves nothing behind, and does not disturb an agent that runs.
package doctor

import (
	"context"
	"net/url"
	"slices"

	"k8s4r.io/k8s4r/internal/isolation"
)

// Level says how bad a finding is.
type Level string

// The levels, from good to bad.
const (
	OK   Level = "ok"
	Warn Level = "warn" // the agent works, and something goes less well than it could
	Fail Level = "fail" // the agent could not work
)

var levels = []Level{OK, Warn, Fail}

// Finding is one thing that was looked at.
type Finding struct {
	Level Level `json:"level"`
	// Check is what was looked at, in a word or two.
	Check string `json:"check"`
	// Says is a sentence about what was found.
	Says string `json:"says"`
	// Remedy is what to do about it. Empty: nothing needs to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Subject is the agent that is looked at.
type Subject struct {
	RobotID  string
	StateDir string
	Broker   *url.URL
	// Drivers are those that the robot offers, Engine is the socket of the Docker
	// engine.
	Drivers []string
	Engine  string
	// TaskUser is who tasks run as that name no user.
	TaskUser string
	// Isolation is what an agent that runs has found. Nil: none runs, and it is
	// tried here.
	Isolation *isolation.Host
}

// Examine looks at everything.
func Examine(ctx context.Context, s Subject) []Finding {
	return slices.Concat(
		kernel(), stateDir(s.StateDir), drivers(s), isolated(s), taskUser(s), clock(),
		broker(ctx, s), certificates(), service(ctx),
	)
}

// Worst is the worst level among the findings.
func Worst(all []Finding) Level {
	worst := 0
	for _, f := range all {
		worst = max(worst, slices.Index(levels, f.Level))
	}
	return levels[worst]
}

func good(check, says string) Finding { return Finding{Level: OK, Check: check, Says: says} }

func bad(l Level, check, says, remedy string) Finding { return Finding{l, check, says, remedy} }
