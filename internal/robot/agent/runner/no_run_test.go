package runner

import (
	"slices"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// The agent is killed after the server has stopped or paused a task, and before the task has ended. What ended
// meanwhile must not be restarted by the next agent.
func TestNoRun_OutlivesTheAgent(t *testing.T) {
	paused := wire.TaskList{Epoch: 9, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1, StartsNoRun: true}}}
	resumed := wire.TaskList{Epoch: 10, Refs: []wire.TaskReference{{UID: "t1", Attempt: 1}}}
	for name, test := range map[string]struct {
		messages []message
		reason   string // of the end; empty: the task is restarted
	}{
		"a pause":            {[]message{paused}, wire.ReasonPaused},
		"a repeated pause":   {[]message{paused, paused}, wire.ReasonPaused},
		"not a resumed task": {[]message{paused, resumed}, ""},
		"a delete":           {[]message{wire.Dispatch{Action: wire.ActionDelete, Task: shell("t1", ""), Attempt: 1}}, wire.ReasonStopped},
		"a list without it":  {[]message{wire.TaskList{Epoch: 9}}, wire.ReasonStopped},
		"a newer attempt":    {[]message{wire.Dispatch{Action: wire.ActionCreate, Task: shell("t1", ""), Attempt: 2, Epoch: 2}}, wire.ReasonSuperseded},
		"a pause, a delete":  {[]message{paused, wire.Dispatch{Action: wire.ActionDelete, Task: shell("t1", ""), Attempt: 1}}, wire.ReasonStopped},
	} {
		t.Run(name, func(t *testing.T) {
			x := runningTest(t, restarting(2, time.Second))
			for _, m := range test.messages {
				x.round(m)
			}
			x.left = shim.State{MayHaveStarted: true, Started: &shim.Started{At: x.wall}, Exit: &shim.Exit{Code: 3}}
			x.restartAgent()
			x.pass(time.Minute)
			if test.reason == "" {
				x.requireStarts("the second run", 1)
				return
			}
			x.requireStarts("no further run", 0)
			x.requireEnd(test.reason, 1)
		})
	}
}

// The next agent stops a task whose stop may not have reached its shim.
func TestNoRun_NextAgentStopsTheTask(t *testing.T) {
	x := runningTest(t, restarting(2, time.Second))
	x.round(wire.Dispatch{Action: wire.ActionDelete, Task: x.task, Attempt: 1})
	x.alive = x.shims.last
	x.restartAgent()
	if want := []string{wire.ReasonStopped}; !slices.Equal(x.shims.stops, want) {
		t.Errorf("its shim was asked to stop for %v, want %v", x.shims.stops, want)
	}
}
