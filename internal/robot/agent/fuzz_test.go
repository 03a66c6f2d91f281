package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/builtin"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// noShims is a keeper that starts nothing.
type noShims struct{}

func (noShims) Start(shim.Spec, string) (*supervisor.Shim, error)             { return nil, driver.ErrNoDriver }
func (noShims) Kill(*supervisor.Shim) error                                   { return nil }
func (noShims) Adopt(string) (*supervisor.Shim, shim.State, error)            { return nil, shim.State{}, nil }
func (noShims) ReadState(*supervisor.Shim) (shim.State, error)                { return shim.State{}, nil }
func (noShims) Pause(*supervisor.Shim) error                                  { return nil }
func (noShims) Stop(*supervisor.Shim, string, time.Duration) error            { return nil }
func (noShims) UpdateAttributes(*supervisor.Shim, wire.RobotAttributes) error { return nil }
func (noShims) Events() <-chan struct{}                                       { return nil }
func (noShims) Updates() []supervisor.Update                                  { return nil }

// noLogs sends no logs.
type noLogs struct{}

func (noLogs) AddLog(logship.Attempt, string) {}
func (noLogs) EndLog(logship.Attempt)         {}

// FuzzReceive sends two messages to the agent, and checks that it keeps working and that its
// journal stays consistent.
func FuzzReceive(f *testing.F) {
	kinds := []wire.Kind{wire.KindDispatch, wire.KindState, wire.KindAck, wire.KindResponse}
	f.Add(uint8(0), []byte(`{"action":"create","attempt":1,"task":{"metadata":{"uid":"a"},"spec":{"driver":"exec"}}}`),
		uint8(0), []byte(`{"action":"delete","attempt":1,"task":{"metadata":{"uid":"a"}}}`))
	f.Add(uint8(2), []byte(`{"tasks":[{"uid":"a","attempt":1,"seq":1}]}`), uint8(1), []byte(`{"tasks":[],"epoch":1,"refs":[{"uid":"a"}]}`))
	f.Add(uint8(0), []byte(`{"action":"create","attempt":1,"task":{"metadata":{"uid":"a"},"spec":{"driver":"exec","config":{"execConfig":{"command":"a"}},"array":{"indexes":"0-2,7","items":["a","b","c","d"]}}}}`),
		uint8(1), []byte(`{"tasks":[],"epoch":1,"refs":[{"uid":"a","startsNoIndex":true}]}`))
	f.Add(uint8(3), []byte(`{"success":true}`), uint8(3), []byte("\x00"))
	j, err := journal.Open(f.TempDir(), journal.Options{})
	must(f, err)
	log := slog.New(slog.DiscardHandler)
	logs, err := logship.New(logship.Config{})
	must(f, err)
	f.Fuzz(func(t *testing.T, k1 uint8, m1 []byte, k2 uint8, m2 []byte) {
		a := &Agent{log: log, logs: logs, problems: newRateLimitedLog(log, time.Now), outbox: transport.NewOutbox(nil, time.Now), connection: transport.NewConnection(transport.ConnectionConfig{})}
		a.registerHandlers()
		dir := t.TempDir()
		lastSeen, err := transport.OpenLastSeen(dir, transport.Clocks{SinceBoot: shim.SinceBoot, Now: time.Now})
		must(t, err)
		defer lastSeen.Close()
		a.lastSeen = lastSeen
		a.runner = runner.New(runner.Config{
			RobotID: robot, StateDir: runner.StateDir(dir), Drivers: builtin.NewSet(""), Journal: j, Shims: noShims{}, LastSeen: lastSeen, Logs: noLogs{},
			Reports: a.outbox, Problems: a.problems, Now: time.Now, Log: log,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.runner.Run(ctx) }()
		a.handlePayload(kinds[k1%4], m1, "")
		a.handlePayload(kinds[k2%4], m2, "")
		for range 2 { // the second reply comes after the end of the round that handled the messages
			_, err := a.runner.ListTasks(ctx)
			must(t, err)
		}
		cancel()
		must(t, <-ended)
		for _, e := range j.Entries() {
			if !e.HasEnded() {
				t.Errorf("nothing runs, and the journal has %+v", e)
			}
		}
	})
}
