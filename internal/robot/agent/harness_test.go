package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/broker"
	tasklog "k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
	"k8s4r.io/k8s4r/internal/testkit/fakeserver"
)

const robot = "r1"

// testTimeout limits every wait. No test comes near it.
const testTimeout = time.Minute

// waitUntil waits until ok holds.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(testTimeout); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited %v without success: %s", testTimeout, what)
		}
	}
}

// fakeServer is a broker with a server for one robot. Its fields set how it responds to
// messages; the test sends everything else.
type fakeServer struct {
	t    testing.TB
	addr string

	mu                  sync.Mutex
	broker              *broker.Broker
	client              *fakeserver.Conn // nil: stopped
	acceptRegistrations bool
	ignoreReports       bool             // does not acknowledge reports
	ignoreHeartbeats    bool             // does not acknowledge heartbeats
	logging             bool             // acknowledges logs as stored
	logged              map[string]int64 // bytes of logs, by task
	registers           []wire.Register
	heartbeats          []wire.Heartbeat
	presences           []wire.Presence
	reports             []wire.Status
	epoch               uint64
}

func newFakeServer(t testing.TB) *fakeServer {
	s := &fakeServer{t: t, acceptRegistrations: true, addr: freeAddr(t)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *fakeServer) start() {
	s.t.Helper()
	var b *broker.Broker
	waitUntil(s.t, "the address to be free again", func() bool {
		b = broker.New(broker.Config{Listen: s.addr})
		err := b.Start(context.Background())
		if !errors.Is(err, syscall.EADDRINUSE) {
			must(s.t, err)
		}
		// Until it executes, a shim that the agent starts holds copies of all descriptors of
		// this process, so a closed listener may still be open.
		return err == nil
	})
	c, err := fakeserver.Connect(s.addr, s.handleMessage)
	must(s.t, err)
	// Set before it listens, because its callback answers over the client.
	s.setFields(func() { s.broker, s.client = b, c })
	must(s.t, c.SubscribeReports())
}

func (s *fakeServer) stop() {
	s.mu.Lock()
	b := s.broker
	s.broker, s.client = nil, nil
	s.mu.Unlock()
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		s.t.Error(err)
	}
}

// currentUser returns the name of the test's user.
func currentUser(t testing.TB) string {
	t.Helper()
	u, err := user.Current()
	must(t, err)
	return u.Username
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *fakeServer) handleMessage(topic string, payload []byte) {
	a, err := wire.ParseTopic(topic)
	if err != nil {
		s.t.Errorf("the agent published on %s: %v", topic, err)
		return
	}
	switch a.Kind {
	case wire.KindRegister:
		recordMessage(s, &s.registers, payload)
		s.mu.Lock()
		answer := s.acceptRegistrations
		s.mu.Unlock()
		s.publish(wire.KindResponse, wire.Response{Success: answer, RobotID: a.RobotID}, false)
	case wire.KindHeartbeat:
		h := recordMessage(s, &s.heartbeats, payload)
		s.mu.Lock()
		ignored := s.ignoreHeartbeats
		s.mu.Unlock()
		if !ignored {
			s.publish(wire.KindAck, wire.Ack{Heartbeat: h.Seq}, false)
		}
	case wire.KindLogs:
		s.takeLogs(a.TaskUID, payload)
	case wire.KindPresence:
		recordMessage(s, &s.presences, payload)
	case wire.KindStatus:
		r := recordMessage(s, &s.reports, payload)
		s.mu.Lock()
		ignored := s.ignoreReports
		s.mu.Unlock()
		if !ignored {
			s.ack(r.TaskUID, r.Attempt, r.Seq)
		}
	}
}

// takeLogs acknowledges a piece of a log as if all before it were stored.
func (s *fakeServer) takeLogs(uid string, payload []byte) {
	l, err := wire.Decode[wire.Logs](payload)
	if err == nil {
		l.Data, err = l.Unpack()
	}
	if err != nil {
		s.t.Errorf("the agent sent %d bytes: %v", len(payload), err)
	}
	s.mu.Lock()
	taken := s.logging
	if s.logged == nil {
		s.logged = map[string]int64{}
	}
	if l.Offset-l.Lost <= s.logged[uid] {
		s.logged[uid] = max(s.logged[uid], l.Offset+int64(len(l.Data)))
	}
	offset := s.logged[uid]
	s.mu.Unlock()
	if taken {
		s.publish(wire.KindAck, wire.Ack{Logs: []wire.LogAck{{UID: uid, Attempt: l.Attempt, Seq: l.Seq, Offset: offset, Done: l.Last}}}, false)
	}
}

// storedBytes returns how much of a task's log the server has.
func (s *fakeServer) storedBytes(uid string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logged[uid]
}

func recordMessage[T any](s *fakeServer, list *[]T, payload []byte) T {
	v, err := wire.Decode[T](payload)
	if err != nil {
		s.t.Errorf("the agent sent %q: %v", payload, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, v)
	return v
}

func (s *fakeServer) setFields(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeServer) publish(k wire.Kind, v any, retain bool) {
	payload, err := wire.Encode(v)
	if err != nil {
		s.t.Error(err)
	}
	s.publishRaw(wire.RobotTopic(robot, k), payload, retain)
}

// publishRaw publishes without waiting for the broker, because it is called from the callback.
func (s *fakeServer) publishRaw(topic string, payload []byte, retain bool) {
	s.mu.Lock()
	c := s.client
	s.mu.Unlock()
	if c != nil {
		c.Send(topic, payload, retain)
	}
}

func (s *fakeServer) ack(uid string, attempt int32, seq uint64) {
	s.publish(wire.KindAck, wire.Ack{Tasks: []wire.TaskAck{{UID: uid, Attempt: attempt, Seq: seq}}}, false)
}

// dispatch sends an attempt of a task and returns the epoch it was sent at.
func (s *fakeServer) dispatch(task wire.Task, attempt int32) uint64 {
	s.mu.Lock()
	s.epoch++
	epoch := s.epoch
	s.mu.Unlock()
	s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionCreate, Task: task, Attempt: attempt, Epoch: epoch}, false)
	return epoch
}

func (s *fakeServer) remove(uid string, attempt int32) {
	s.publish(wire.KindDispatch, wire.Dispatch{Action: wire.ActionDelete, Task: wire.Task{Metadata: wire.TaskMeta{UID: uid}}, Attempt: attempt}, false)
}

// reportsAbout returns the reports about one attempt so far.
func (s *fakeServer) reportsAbout(uid string, attempt int32) []wire.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []wire.Status
	for _, r := range s.reports {
		if r.TaskUID == uid && r.Attempt == attempt {
			all = append(all, r)
		}
	}
	return all
}

// distinctReports returns the reports about one attempt so far, without repetitions.
func (s *fakeServer) distinctReports(uid string, attempt int32) []wire.Status {
	return slices.CompactFunc(s.reportsAbout(uid, attempt), func(a, b wire.Status) bool { return a.Seq == b.Seq })
}

// await waits for a report about one attempt.
func (s *fakeServer) await(uid string, attempt int32, what string, ok func(wire.Status) bool) wire.Status {
	s.t.Helper()
	var found wire.Status
	waitUntil(s.t, fmt.Sprintf("%s of attempt %d of %s", what, attempt, uid), func() bool {
		for _, r := range s.reportsAbout(uid, attempt) {
			if ok(r) {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

func (s *fakeServer) awaitRunning(uid string, attempt int32) wire.Status {
	s.t.Helper()
	return s.await(uid, attempt, "running", func(r wire.Status) bool { return r.State == wire.ReportRunning })
}

func (s *fakeServer) awaitEnd(uid string, attempt int32) wire.Status {
	s.t.Helper()
	return s.await(uid, attempt, "the end", wire.Status.IsTerminal)
}

func (s *fakeServer) awaitRegistered(n int) {
	s.t.Helper()
	waitUntil(s.t, "registration", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.registers) >= n && len(s.heartbeats) > 0
	})
}

// config returns the configuration of an agent on this server.
func (s *fakeServer) config(dir string) Config {
	return Config{
		RobotID: robot, Broker: &url.URL{Scheme: "mqtt", Host: s.addr}, StateDir: dir,
		Heartbeat: 30 * time.Second, ParentFD: -1, OnStop: OnStopEnd,
	}
}

// runningAgent is an agent in the process of the test.
type runningAgent struct {
	*Agent
	t      testing.TB
	cancel func()
	hurry  func()
	err    func() error // waits until it has ended
}

// refusing makes writes of the agent's journal fail with err while refuses is set.
func refusing(refuses *atomic.Bool, err error) option {
	return func(c *runner.Config, _ *transport.ConnectionConfig) {
		c.Journal = refusingJournal{c.Journal.(*journal.Journal), refuses, err}
	}
}

type refusingJournal struct {
	*journal.Journal
	refuses *atomic.Bool
	err     error
}

func (j refusingJournal) Append(records ...journal.Record) error {
	if len(records) > 0 && j.refuses.Load() { // New appends an empty list
		return j.err
	}
	return j.Journal.Append(records...)
}

// recordedShims records what an agent orders its shims to do.
type recordedShims struct {
	*supervisor.Supervisor
	mu     sync.Mutex
	specs  []shim.Spec
	graces []time.Duration
}

// recordShims records in r what the agent orders its shims to do.
func recordShims(r *recordedShims) option {
	return func(c *runner.Config, _ *transport.ConnectionConfig) {
		r.Supervisor = c.Shims.(*supervisor.Supervisor)
		c.Shims = r
	}
}

func (r *recordedShims) Start(spec shim.Spec, name string) (*supervisor.Shim, error) {
	r.mu.Lock()
	r.specs = append(r.specs, spec)
	r.mu.Unlock()
	return r.Supervisor.Start(spec, name)
}

func (r *recordedShims) Stop(s *supervisor.Shim, cause string, grace time.Duration) error {
	r.mu.Lock()
	r.graces = append(r.graces, grace)
	r.mu.Unlock()
	return r.Supervisor.Stop(s, cause, grace)
}

// started returns the specifications of the shims that were started.
func (r *recordedShims) started() []shim.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.specs)
}

// gracePeriods returns the grace periods of the orders to stop.
func (r *recordedShims) gracePeriods() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.graces)
}

// registerEvery sets the time between registrations.
func registerEvery(pause time.Duration) option {
	return func(_ *runner.Config, c *transport.ConnectionConfig) { c.RegisterRetry = pause }
}

func startAgent(t testing.TB, c Config, options ...option) *runningAgent {
	t.Helper()
	a, err := New(c, slog.New(slog.NewTextHandler(testLog(t), nil)), options...)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	hurry, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Run(ctx, hurry) }()
	r := &runningAgent{Agent: a, t: t, cancel: cancel, hurry: sync.OnceFunc(func() { close(hurry) })}
	r.err = sync.OnceValue(func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(testTimeout):
			t.Error("agent did not end")
			return nil
		}
	})
	t.Cleanup(func() {
		r.stopHurriedly()
		_ = r.err()
		must(t, runner.StateDir(c.StateDir).UnprotectTaskDirs()) // if tasks were left
	})
	return r
}

// stop ends the agent in order.
func (r *runningAgent) stop() {
	r.t.Helper()
	r.cancel()
	must(r.t, r.err())
}

// stopHurriedly stops the agent with shortened waits.
func (r *runningAgent) stopHurriedly() {
	r.hurry()
	r.cancel()
}

func testLog(t testing.TB) io.Writer {
	if testing.Verbose() {
		return t.Output()
	}
	return io.Discard
}

// shell returns a task that runs a script.
func shell(uid, script string, change ...func(*wire.Task)) wire.Task {
	t := wire.Task{
		Metadata: wire.TaskMeta{Name: "task-" + uid, Namespace: "default", UID: uid},
		Spec: wire.TaskSpec{
			Name: "main", JobName: "job", TaskGroupName: "group", Driver: "raw_exec",
			Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: "sh", Args: []string{"-c", script}}},
		},
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

// lines returns the fields of a file that tasks append to. A missing file has none.
func lines(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// output returns what a task has written to a stream so far.
func output(t testing.TB, dir, uid string, attempt int32, stream tasklog.Stream) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(runner.StateDir(dir).LogDir(uid, attempt), "*"))
	var out strings.Builder
	for _, f := range files { // by their names, in order
		b, err := os.ReadFile(f)
		must(t, err)
		for line := range bytes.Lines(b) {
			record, err := tasklog.Parse(line)
			if err != nil || record.Stream != stream {
				continue // it is being written, or another's
			}
			out.Write(record.Text)
			if !record.Partial {
				out.WriteByte('\n')
			}
		}
	}
	return out.String()
}
