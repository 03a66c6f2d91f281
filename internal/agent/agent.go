// Package agent is the robot's side of K8s4r: it holds a connection to the
// MQTT broker, takes tasks on, has each run by a shim of its own (package shim), and
// reports until the server has written down what it said.
//
// A fixed number of goroutines does all of it, however many tasks run: the
// link, the runner that owns every decision, the outbox that repeats reports, the
// shipper of logs, who looks at disks with a quota, and the keeper of the tasks'
// shims, which is there only while one runs.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/agent/credential"
	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/agent/logship"
	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/version"
	"k8s4r.io/k8s4r/internal/wire"
)

// The bounds of a stop that ends the tasks.
const (
	stopGrace  = 30 * time.Second // for the tasks, if their killTimeout is longer
	ackWait    = 5 * time.Second  // for the server to take the last reports
	hurryGrace = 500 * time.Millisecond
	hurryAcks  = time.Second
	// haltMargin is how long the word of a task's end takes beyond its own time.
	haltMargin = 3 * time.Second
)

// errLocked refuses a second agent on one state directory.
var errLocked = errors.New("another k8s4r-agent uses this state directory")

// errStalled is why a message is dropped that was in order.
var errStalled = errors.New("the agent cannot write its journal and is behind")

// Agent is one robot's agent.
type Agent struct {
	config  Config
	log     *slog.Logger
	lock    *os.File
	journal *journal.Journal
	shims   *shims.Keeper
	contact *contact
	logs    *logship.Shipper
	out     *outbox
	runner  *runner
	link    *link
	meter   *meter
	// credential proves the robot. Nil: it proves nothing.
	credential *credential.Credential
	broker     atomic.Pointer[url.URL]

	handlers map[wire.Kind]func(payload []byte, trace string) error
	stalled  atomic.Bool // the runner takes no messages
	began    time.Time
}

// New takes hold of the state directory, and takes over what an earlier agent left
// there. Run must follow.
func New(c Config, log *slog.Logger) (*Agent, error) {
	a := &Agent{config: c, log: log, began: time.Now()}
	if err := a.open(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *Agent) open() (err error) {
	if err := os.MkdirAll(a.config.StateDir, 0o711); err != nil {
		return fmt.Errorf("create state directory: %w", err)
	}
	if a.lock, err = lockDir(a.config.StateDir); err != nil {
		return err
	}
	if a.journal, err = journal.Open(a.config.StateDir, journal.Options{Forget: a.forget}); err != nil {
		return err
	}
	if n := a.journal.Damaged(); n > 0 {
		a.log.Error("the journal has damaged lines, which were passed over", "lines", n)
	}
	if a.contact, err = openContact(a.config.StateDir); err != nil {
		return err
	}
	if a.shims, err = shims.New(); err != nil {
		return err
	}
	a.logs, err = logship.New(logship.Config{
		Publish: func(ctx context.Context, uid string, l wire.Logs) error { return a.link.logs(ctx, uid, l) },
		Done:    a.logged, Log: a.log,
	})
	if err != nil {
		return err
	}
	if err := a.openCredential(); err != nil {
		return err
	}
	a.assemble()
	if err := a.runner.places.sweep(a.known); err != nil {
		return err
	}
	return a.runner.recover()
}

func (a *Agent) known(uid string, attempt int32) bool {
	_, known := a.journal.Get(uid, attempt)
	return known
}

// assemble makes the parts that hold nothing which needs closing.
func (a *Agent) assemble() {
	c := a.config
	a.out = newOutbox(func(ctx context.Context, s wire.Status) error { return a.link.report(ctx, s) }, time.Now)
	a.runner = newRunner(c, a.journal, a.shims, a.contact, a.logs, a.out, a.log, time.Now)
	if c.taskUser() == "root" {
		a.log.Warn("tasks that name no user run as root: whoever may submit tasks is root on this robot (--task-user)")
	}
	a.runner.host = isolation.Probe(places{c.StateDir}.owner(c.RobotID), c.StateDir)
	a.link = &link{
		robotID: c.RobotID, broker: c.Broker, heartbeat: c.Heartbeat, retry: registerEvery,
		register: wire.Register{RobotID: c.RobotID, Token: c.Token, AgentVersion: version.Version, Labels: c.Labels},
		device:   newTelemetry(a.runner.drivers.Offered, a.runner.host, c.taskUser(), time.Now).read,
		receive:  a.receive,
		connected: func(up bool) {
			a.out.connected(up)
			a.logs.Connected(up)
		},
		beat:      a.contact.beat,
		use:       a.use,
		beats:     uint64(shim.SinceBoot().Milliseconds()),
		log:       a.log,
		responses: make(chan wire.Response, 1),
	}
	a.broker.Store(c.Broker)
	a.proveLink()
	a.meter = newMeter(a.runner.host, a.runner.drivers)
	a.listen()
}

// forget deletes what the journal keeps no longer.
func (a *Agent) forget(e journal.Entry) {
	if a.logs != nil { // not while the journal is opened
		a.logs.Forget(logship.Attempt{UID: e.UID, Attempt: e.Attempt})
	}
	if err := (places{a.config.StateDir}).remove(e.UID, e.Attempt); err != nil {
		a.log.Warn("directory of an old task not removed", "uid", e.UID, "attempt", e.Attempt, "error", err)
	}
}

// lockPatience outlasts a shim that an agent was about to start when it was killed:
// until it is started it holds what the agent held.
const lockPatience = time.Second

// logged deletes a log that the server has all of, or wants nothing of.
func (a *Agent) logged(l logship.Attempt) {
	if err := os.RemoveAll(places{a.config.StateDir}.logs(l.UID, l.Attempt)); err != nil {
		a.log.Warn("log that the server has not removed", "uid", l.UID, "attempt", l.Attempt, "error", err)
	}
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	for until := time.Now().Add(lockPatience); ; time.Sleep(time.Millisecond) {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f, nil
		}
		if time.Now().After(until) {
			return nil, errors.Join(fmt.Errorf("%w: %s", errLocked, dir), f.Close())
		}
	}
}

// close lets go of everything. Tasks that still run go on.
func (a *Agent) close() {
	if a.shims != nil {
		a.shims.Close()
	}
	if a.runner != nil && len(a.runner.live) == 0 && a.runner.host.Tree != nil {
		_ = a.runner.host.Tree.Remove() // an error: the next agent sweeps it
	}
	if a.contact != nil {
		a.contact.file.Close()
	}
	if a.journal != nil {
		_ = a.journal.Close()
	}
	if a.lock != nil {
		_ = a.lock.Close()
	}
}

// Run works until ctx ends and then stops in order: the tasks if it is to, the last
// reports, a goodbye. When hurry is closed the waits are cut short. It fails
// at once when the journal can be trusted no more.
func (a *Agent) Run(ctx context.Context, hurry <-chan struct{}) error {
	defer a.close()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()

	failed := make(chan error, 1)
	parts.Go(func() {
		if err := a.runner.loop(work); err != nil {
			failed <- err
		}
	})
	parts.Go(func() { a.out.run(work) })
	parts.Go(func() { a.logs.Run(work) })
	parts.Go(func() { a.runner.quotas.run(work, func(e excess) { a.hand(e) }) })
	a.serveHealth(work, &parts) // before the server hears of us: who knows that we run may ask us
	parts.Go(func() { a.connect(work) })

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return a.stop(work, hurry, failed)
	}
}

// stop ends the tasks if it is to, waits until the server knows, and says goodbye.
func (a *Agent) stop(work context.Context, hurry <-chan struct{}, failed <-chan error) error {
	a.log.Info("stopping", "tasks", a.config.OnStop)
	if a.config.OnStop == OnStopEnd {
		if err := a.stopTasks(hurry, failed); err != nil {
			a.shims.StopAll(wire.ReasonAgentStopped) // the next agent hears how they ended
			return err
		}
	}
	a.awaitAcks(hurry)
	ctx, cancel := context.WithTimeout(work, hurryAcks)
	defer cancel()
	if err := a.link.goodbye(ctx); err != nil {
		a.log.Warn("stopped without a goodbye to the server", "error", err)
	}
	return nil
}

// stopTasks returns when no task runs any more.
func (a *Agent) stopTasks(hurry <-chan struct{}, failed <-chan error) error {
	if hurried, err := a.halt(stopGrace, hurry, failed); !hurried {
		return err
	}
	_, err := a.halt(hurryGrace, nil, failed)
	return err
}

// halt tells the runner to stop all tasks and waits for it, but not longer
// than the tasks get and some: a full disk holds the runner up for ever.
func (a *Agent) halt(grace time.Duration, hurry <-chan struct{}, failed <-chan error) (hurried bool, err error) {
	patience := time.After(grace + haltMargin)
	halts := a.runner.halts
	for {
		select {
		case halts <- grace:
			halts = nil
		case <-a.runner.idle:
			return false, nil
		case <-hurry:
			return true, nil
		case err := <-failed:
			return false, err
		case <-patience:
			return false, errors.New("the tasks could not be stopped in order, and were killed")
		}
	}
}

// awaitAcks gives the server some time to take the last reports. What it does
// not take is in the journal and goes out with the next start.
func (a *Agent) awaitAcks(hurry <-chan struct{}) {
	if !a.link.isUp() {
		return
	}
	patience := time.After(ackWait)
	drained := a.out.drained()
	for {
		select {
		case <-drained:
			return
		case <-patience:
			return
		case <-hurry:
			hurry, patience = nil, time.After(hurryAcks)
		}
	}
}

// inboxPatience is how long a message waits for the runner, which is busy that
// long only when the disk refuses to take the journal.
const inboxPatience = 10 * time.Second

// hand gives a message to the runner. After one has waited in vain the next
// ones do not wait, until there is room: the server repeats what matters, and
// a queue of all its repetitions would not make the disk any emptier.
func (a *Agent) hand(m message) {
	if a.stalled.Load() {
		select {
		case a.runner.inbox <- m:
			a.stalled.Store(false)
		default:
			a.runner.noise.drop("message", errStalled)
		}
		return
	}
	select {
	case a.runner.inbox <- m:
	case <-time.After(inboxPatience):
		a.stalled.Store(true)
		a.runner.noise.drop("message", errStalled)
	}
}

// receive takes a message apart and hands it to who it is for.
func (a *Agent) receive(k wire.Kind, payload []byte, trace string) {
	if err := a.handlers[k](payload, trace); err != nil {
		a.runner.noise.drop("message on "+string(k), err)
	}
}

// listen says what is done with each kind of message.
func (a *Agent) listen() {
	a.handlers = map[wire.Kind]func([]byte, string) error{
		wire.KindDispatch: func(b []byte, trace string) error {
			return decode(b, func(d wire.Dispatch) {
				d.Traceparent = trace
				a.hand(d)
			})
		},
		wire.KindState:    func(b []byte, _ string) error { return decode(b, func(l wire.TaskList) { a.hand(l) }) },
		wire.KindAck:      func(b []byte, _ string) error { return decode(b, a.acked) },
		wire.KindResponse: func(b []byte, _ string) error { return decode(b, a.link.answer) },
	}
}

func (a *Agent) acked(m wire.Ack) {
	if m.Heartbeat > 0 {
		a.link.news.acked(m.Heartbeat)
		a.contact.acked(m.Heartbeat)
	}
	if len(m.Logs) > 0 {
		a.logs.Acked(m.Logs)
	}
	if len(m.Tasks) > 0 {
		a.hand(m)
	}
}

func decode[T any](payload []byte, use func(T)) error {
	v, err := wire.Decode[T](payload)
	if err == nil {
		use(v)
	}
	return err
}
