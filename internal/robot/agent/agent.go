// Package agent is the robot's side of K8s4r: it connects to the MQTT broker, runs the tasks
// that the server dispatches, and reports about them until the server has written the
// reports.
//
// Its parts are packages of their own, which it assembles here:
//
//   - transport holds the connection, repeats reports and knows when the robot was last seen;
//     it knows nothing of tasks.
//   - runner decides what happens to each attempt; it knows nothing of MQTT.
//   - journal, logship, credential, diagnose and service do what their names say.
//
// What is left are the command line, the configuration, the health socket and the device
// information. A fixed number of goroutines does all of it, however many tasks run.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/version"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/artifactcache"
	"k8s4r.io/k8s4r/internal/robot/agent/credential"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/localstate"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/agent/policyfile"
	"k8s4r.io/k8s4r/internal/robot/agent/prefetch"
	"k8s4r.io/k8s4r/internal/robot/agent/runner"
	"k8s4r.io/k8s4r/internal/robot/agent/sealed"
	"k8s4r.io/k8s4r/internal/robot/agent/selfupdate"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
	"k8s4r.io/k8s4r/internal/robot/agent/transport"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/driver/builtin"
	"k8s4r.io/k8s4r/internal/robot/hwclock"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// The bounds of a stop that ends the tasks.
const (
	stopGrace    = 30 * time.Second // for tasks with a longer killTimeout
	ackTimeout   = 5 * time.Second  // for the server to acknowledge the last reports
	hurriedGrace = 500 * time.Millisecond
	hurriedAcks  = time.Second
	// stopMargin is how long it takes to learn of the end of a task after its grace period.
	stopMargin = 3 * time.Second
)

// errLocked refuses a second agent on one state directory.
var errLocked = errors.New("another k8s4r-agent uses this state directory")

// Agent is one robot's agent.
type Agent struct {
	config     Config
	log        *slog.Logger
	problems   *rateLimitedLog
	lock       *os.File
	journal    *journal.Journal
	shims      *supervisor.Supervisor
	drivers    driver.Set
	host       isolation.Host
	lastSeen   *transport.LastSeen
	logs       *logship.Shipper
	outbox     *transport.Outbox
	journals   *journalPublisher
	runner     *runner.Runner
	connection *transport.Connection
	credential *credential.Credential // nil: the robot presents no certificate
	policy     *policyfile.Keeper
	local      *localstate.Store
	slots      *slots.Store
	updates    *selfupdate.Updater
	orders     *selfupdate.Orders
	trial      *trial
	cache      *artifactcache.Cache // nil: there is none
	prefetcher *prefetch.Fetcher

	switchOver chan struct{} // closed when another version must take over
	switchOnce sync.Once

	handlers  map[wire.Kind]func(payload []byte, trace string) error
	startedAt time.Time
}

// option changes the configuration of parts. Tests use it.
type option func(*runner.Config, *transport.ConnectionConfig)

// New locks the state directory, and takes over the tasks of an earlier agent. Run must
// follow.
func New(c Config, log *slog.Logger, options ...option) (*Agent, error) {
	a := &Agent{config: c, log: log, problems: newRateLimitedLog(log, time.Now), startedAt: time.Now(), switchOver: make(chan struct{})}
	if err := a.openState(options); err != nil {
		a.closeParts()
		return nil, err
	}
	return a, nil
}

func (a *Agent) openState(options []option) (err error) {
	if err := os.MkdirAll(a.config.StateDir, 0o711); err != nil {
		return fmt.Errorf("create state directory: %w", err)
	}
	if a.lock, err = lockStateDir(a.config.StateDir); err != nil {
		return err
	}
	if err := checkCopied(a.config.StateDir); err != nil {
		return err
	}
	if err := a.openSlots(); err != nil {
		return err
	}
	if err := recordOrigin(a.config.StateDir); err != nil {
		a.log.Warn("a copy of the state directory would not be recognized", "error", err)
	}
	if err := a.openPolicy(); err != nil {
		return err
	}
	if err := a.stateDir().ProtectTaskDirs(); err != nil {
		a.log.Info("setuid programs and device files in the directories of tasks are not disabled, see k8s4r-agent doctor", "error", err)
	}
	if a.local, err = localstate.Open(a.config.StateDir); err != nil {
		return err
	}
	if a.journal, err = journal.Open(a.config.StateDir, journal.Options{Forget: a.forgetAttempt}); err != nil {
		return err
	}
	if n := a.journal.DamagedLines(); n > 0 {
		a.log.Error("the journal has damaged lines, which were skipped", "lines", n)
	}
	if a.lastSeen, err = transport.OpenLastSeen(a.config.StateDir, a.clocks()); err != nil {
		return err
	}
	if a.shims, err = supervisor.New(); err != nil {
		return err
	}
	a.logs, err = logship.New(logship.Config{
		Publish: func(ctx context.Context, of logship.Attempt, l wire.Logs) error { return a.publishLog(ctx, of, l) },
		Done:    a.removeShippedLog, Log: a.log,
	})
	if err != nil {
		return err
	}
	if err := a.openCredential(); err != nil {
		return err
	}
	a.openCache()
	a.assembleParts(options)
	if err := a.stateDir().SweepAttempts(a.isJournaled); err != nil {
		return err
	}
	return a.runner.Recover()
}

// clocks returns the clocks of the robot. Its hardware clock counts only if the robot is declared to have a
// battery for it.
func (a *Agent) clocks() transport.Clocks {
	c := transport.Clocks{SinceBoot: shim.SinceBoot, Now: time.Now}
	if a.config.BatteryBackedClock {
		c.Hardware = hwclock.Read
	}
	return c
}

// carryOverDeadlines reports whether the self-stop deadlines of an earlier boot go on in this one. If not,
// tasks that have one do not start before the manager has decided about them.
func (a *Agent) carryOverDeadlines() bool {
	if !a.config.BatteryBackedClock {
		return false
	}
	err := a.lastSeen.CarryOver(a.journal.LastTime())
	if err != nil {
		a.log.Warn("tasks with stopOnRobotAfter that ran before a restart of the robot do not start before contact", "reason", err)
	}
	return err == nil
}

// openPolicy reads the robot's policy. A change of it is registered at once.
func (a *Agent) openPolicy() error {
	root, err := a.config.areTasksRoot()
	if err != nil {
		return err
	}
	a.policy, err = policyfile.Open(policyfile.Config{
		Path: a.config.PolicyFile, TasksAreRoot: root, OnChange: func() { a.connection.RegisterAgain() }, Log: a.log,
	})
	return err
}

func (a *Agent) stateDir() runner.StateDir { return runner.StateDir(a.config.StateDir) }

func (a *Agent) isJournaled(uid string, attempt int32) bool {
	_, known := a.journal.Get(uid, attempt)
	return known
}

// assembleParts creates the parts that hold nothing to close.
func (a *Agent) assembleParts(options []option) {
	c := a.config
	if c.effectiveTaskUser() == "root" {
		a.log.Warn("tasks without a user run as root, so every user who can submit tasks is root on this robot; set --task-user to another user")
	}
	a.drivers = builtin.NewSet(c.DockerSocket)
	a.host = isolation.ProbeHost(a.stateDir().CgroupOwner(c.RobotID), c.StateDir)
	a.outbox = transport.NewOutbox(func(ctx context.Context, s wire.Status) error { return a.connection.PublishStatus(ctx, s) }, time.Now)
	a.journals = newJournalPublisher(func(ctx context.Context, j wire.Journal) error { return a.connection.PublishJournal(ctx, j) }, a.log)
	a.prefetcher = a.newPrefetcher()
	runnerConfig, connectionConfig := a.runnerConfig(), a.connectionConfig()
	a.setRunnerCache(&runnerConfig)
	for _, change := range options {
		change(&runnerConfig, &connectionConfig)
	}
	a.runner = runner.New(runnerConfig)
	connectionConfig.ReadUsage = a.runner.MeasureUsage
	connectionConfig.ReadDiskHealth = a.readDiskHealth(newDiskHealth(c.StateDir, a.runner.CanWriteJournal))
	a.connection = transport.NewConnection(connectionConfig)
	a.registerHandlers()
}

func (a *Agent) runnerConfig() runner.Config {
	deadlinesGoOn := a.carryOverDeadlines()
	return runner.Config{
		RobotID: a.config.RobotID, StateDir: a.stateDir(), TaskUser: a.config.TaskUser, Drivers: a.drivers, DockerSocket: a.config.DockerSocket,
		Policy: a.policy, Host: a.host, Journal: a.journal, Shims: a.shims, LastSeen: a.lastSeen, Logs: a.logs, Reports: a.outbox, Journals: a.journals, Problems: a.problems,
		Local: a.local, OnLocalChange: func() { a.connection.RegisterAgain() }, Sealed: sealed.Open(a.config.StateDir),
		DeadlinesGoOn: deadlinesGoOn, ContactTimeout: contactHeartbeats * a.config.Heartbeat, Now: time.Now, Log: a.log,
	}
}

// contactHeartbeats is how many heartbeats without an acknowledgment the robot has contact.
const contactHeartbeats = 3

func (a *Agent) connectionConfig() transport.ConnectionConfig {
	c := a.config
	config := transport.ConnectionConfig{
		RobotID: c.RobotID, Broker: c.Broker, KeepBroker: c.BrokerIsGiven, CA: c.CA, Heartbeat: c.Heartbeat,
		FirstHeartbeat: uint64(shim.SinceBoot().Milliseconds()), ReceiveMaximum: runner.InboxSize,
		Registration: wire.Register{RobotID: c.RobotID, Token: c.Token, AgentVersion: version.Version, Labels: c.Labels, AnswersDispatches: true, RunsArrays: true, RestartsTasks: true, RefusesInterruptions: true, Prefetches: true},
		ReadDevice:   newDeviceReader(a.drivers.Offered, a.host, c.effectiveTaskUser(), time.Now).readDevice,
		ReadPolicy:   a.policy.Read,
		ReadLocal:    a.local.Read,
		ReadPrefetch: a.prefetcher.Reports,
		ReadUpdate:   a.readUpdate,
		Receive:      a.handlePayload,
		OnConnected: func(connected bool) {
			a.outbox.SetConnected(connected)
			a.logs.SetConnected(connected)
			a.runner.SetConnected(connected)
		},
		OnHeartbeat: a.lastSeen.RecordHeartbeat,
		Log:         a.log,
	}
	if a.credential != nil {
		config.Credential = a.credential
	}
	return config
}

// identityDir is the directory of the robot's key in the state directory.
const identityDir = "identity"

// openCredential opens the robot's key, if there is a server to join.
func (a *Agent) openCredential() (err error) {
	c := a.config
	if c.Server == nil {
		return nil
	}
	a.credential, err = credential.Open(credential.Config{
		Dir: filepath.Join(c.StateDir, identityDir), RobotID: c.RobotID, Server: c.Server, Token: c.Token, CAHash: c.CAHash, CA: c.CA, Log: a.log,
	})
	return err
}

// forgetAttempt deletes the files of an attempt that the journal drops.
func (a *Agent) forgetAttempt(e journal.Entry) {
	if a.logs != nil { // nil while the journal is opened
		a.logs.ForgetLog(logship.Attempt{UID: e.UID, Attempt: e.Attempt})
		a.logs.ForgetLog(logship.Attempt{UID: e.UID, Attempt: e.Attempt, OfRuns: true})
	}
	if err := a.stateDir().RemoveAttempt(e.UID, e.Attempt); err != nil {
		a.log.Warn("directory of an old task not removed", "uid", e.UID, "attempt", e.Attempt, "error", err)
	}
}

// removeShippedLog deletes a log that the server has completely, or does not want.
func (a *Agent) removeShippedLog(l logship.Attempt) {
	dir := a.stateDir().LogDir(l.UID, l.Attempt)
	if l.OfRuns {
		dir = a.stateDir().HistoryDir(l.UID, l.Attempt)
	}
	if err := os.RemoveAll(dir); err != nil {
		a.log.Warn("log of an ended task not removed", "uid", l.UID, "attempt", l.Attempt, "error", err)
	}
}

// publishLog sends a piece of a log.
func (a *Agent) publishLog(ctx context.Context, l logship.Attempt, piece wire.Logs) error {
	kind := wire.KindLogs
	if l.OfRuns {
		kind = wire.KindRuns
	}
	return a.connection.PublishLogs(ctx, l.UID, kind, piece)
}

// lockTimeout outlasts a shim that a killed agent was about to start: until it executes,
// it holds the agent's open files, and so the lock.
const lockTimeout = time.Second

func lockStateDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	for until := time.Now().Add(lockTimeout); ; time.Sleep(time.Millisecond) {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f, nil
		}
		if time.Now().After(until) {
			return nil, errors.Join(fmt.Errorf("%w: %s", errLocked, dir), f.Close())
		}
	}
}

// closeParts releases everything. Tasks that still run go on.
func (a *Agent) closeParts() {
	if a.shims != nil {
		a.shims.Close()
	}
	if a.runner != nil && a.runner.CountAttempts() == 0 {
		a.releaseHost()
	}
	if a.lastSeen != nil {
		a.lastSeen.Close()
	}
	if a.journal != nil {
		_ = a.journal.Close()
	}
	if a.lock != nil {
		_ = a.lock.Close()
	}
}

// releaseHost removes what the agent has set up outside of its directory while no task needs it.
// If that fails, the next agent does it.
func (a *Agent) releaseHost() {
	if a.host.Tree != nil {
		_ = a.host.Tree.Remove()
	}
	_ = a.stateDir().UnprotectTaskDirs()
}

// Run works until ctx ends. Then it ends the tasks if configured, sends the last reports, and
// notifies the server that the agent stops. When hurry is closed, the waits are cut short. It
// returns an error at once if the journal is broken, and errSwitchOver when another version must take
// over the tasks.
func (a *Agent) Run(ctx context.Context, hurry <-chan struct{}) error {
	defer a.closeParts()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()

	failed := make(chan error, 1)
	parts.Go(func() {
		if err := a.runner.Run(work); err != nil {
			failed <- err
		}
	})
	parts.Go(func() { a.outbox.Run(work) })
	parts.Go(func() { a.journals.run(work) })
	parts.Go(func() { a.logs.Run(work) })
	parts.Go(func() { a.runner.WatchQuotas(work) })
	a.runCache(work, &parts)
	parts.Go(func() { a.prefetcher.Run(work) })
	parts.Go(func() { a.orders.Run(work) })
	if a.config.BatteryBackedClock {
		parts.Go(func() { a.lastSeen.WatchClock(work) })
	}
	a.serveLocal(work, &parts)
	a.serveHealth(work, &parts) // before the robot registers, so that it can be queried from then on
	parts.Go(func() { a.connection.Run(work) })

	select {
	case err := <-failed:
		return err
	case <-a.trial.done():
		return a.trial.end(a.slots)
	case <-a.switchOver:
		a.log.Info("another version takes over")
		a.awaitAcks(hurry)
		return errSwitchOver
	case <-ctx.Done():
		a.recordStop()
		return a.stopInOrder(work, hurry, failed)
	}
}

// stopInOrder ends the tasks if configured, waits for the acknowledgment of the last
// reports, and notifies the server.
func (a *Agent) stopInOrder(work context.Context, hurry <-chan struct{}, failed <-chan error) error {
	a.log.Info("stopping", "tasks", a.config.OnStop)
	if a.config.OnStop == OnStopEnd {
		if err := a.stopTasks(hurry, failed); err != nil {
			a.shims.StopAll(wire.ReasonAgentStopped) // the next agent reports how they ended
			return err
		}
	}
	a.awaitAcks(hurry)
	ctx, cancel := context.WithTimeout(work, hurriedAcks)
	defer cancel()
	if err := a.connection.PublishOffline(ctx); err != nil {
		a.log.Warn("stopped without notifying the server", "error", err)
	}
	return nil
}

// stopTasks blocks until no task runs.
func (a *Agent) stopTasks(hurry <-chan struct{}, failed <-chan error) error {
	if hurried, err := a.requestStop(stopGrace, hurry, failed); !hurried {
		return err
	}
	_, err := a.requestStop(hurriedGrace, nil, failed)
	return err
}

// requestStop makes the runner stop all tasks, and waits for it a little longer than the
// tasks' grace period: a full disk would block the runner forever.
func (a *Agent) requestStop(grace time.Duration, hurry <-chan struct{}, failed <-chan error) (hurried bool, err error) {
	timeout := time.After(grace + stopMargin)
	requests := a.runner.StopRequests()
	for {
		select {
		case requests <- grace:
			requests = nil
		case <-a.runner.Idle():
			return false, nil
		case <-hurry:
			return true, nil
		case err := <-failed:
			return false, err
		case <-timeout:
			return false, errors.New("the tasks could not be stopped in order, and were killed")
		}
	}
}

// awaitAcks gives the server some time to acknowledge the last reports. The others are in
// the journal, and the next agent sends them.
func (a *Agent) awaitAcks(hurry <-chan struct{}) {
	if a.connection.IsConnected() {
		awaitDrained(a.outbox.Drained(), hurry)
	}
}

// awaitDrained blocks until drained is closed, at most ackTimeout. When hurry is closed, it waits
// no longer than hurriedAcks from then on.
func awaitDrained(drained, hurry <-chan struct{}) {
	timeout := time.After(ackTimeout)
	for {
		select {
		case <-drained:
			return
		case <-timeout:
			return
		case <-hurry:
			hurry, timeout = nil, time.After(hurriedAcks)
		}
	}
}

// handlePayload decodes a message and passes it to the part that handles its kind.
func (a *Agent) handlePayload(k wire.Kind, payload []byte, trace string) {
	if err := a.handlers[k](payload, trace); err != nil {
		a.problems.WarnDropped("message on "+string(k), err)
	}
}

func (a *Agent) registerHandlers() {
	a.handlers = map[wire.Kind]func([]byte, string) error{
		wire.KindDispatch: func(b []byte, trace string) error {
			return decodeAndHandle(b, func(d wire.Dispatch) {
				d.Traceparent, d.ReceivedAt = trace, shim.SinceBoot()
				a.runner.Deliver(d)
			})
		},
		wire.KindState: func(b []byte, _ string) error {
			return decodeAndHandle(b, func(l wire.TaskList) {
				a.outbox.SetServerConnection(l.ServerConnectionID)
				a.runner.Deliver(l)
			})
		},
		wire.KindAck:      func(b []byte, _ string) error { return decodeAndHandle(b, a.handleAck) },
		wire.KindResponse: func(b []byte, _ string) error { return decodeAndHandle(b, a.handleResponse) },
	}
}

func (a *Agent) handleResponse(r wire.Response) {
	if r.Success {
		a.logs.SetSendsRuns(r.StoresRuns)
	}
	a.connection.HandleResponse(r)
	a.deliverPrefetch(r)
	a.deliverAgentOrder(r)
	if r.UnlockMaintenance != "" {
		a.runner.Unlock(r.UnlockMaintenance)
	}
}

func (a *Agent) handleAck(m wire.Ack) {
	if m.Heartbeat > 0 {
		a.connection.HandleHeartbeatAck(m.Heartbeat, m.DevicePending)
		a.lastSeen.RecordAck(m.Heartbeat)
		a.trial.recordContact()
		a.runner.NotifyContact()
	}
	if len(m.Logs) > 0 {
		a.logs.HandleAcks(m.Logs, false)
	}
	if len(m.Runs) > 0 {
		a.logs.HandleAcks(m.Runs, true)
	}
	if len(m.Tasks) > 0 {
		a.runner.Deliver(m)
	}
}

func decodeAndHandle[T any](payload []byte, handle func(T)) error {
	v, err := wire.Decode[T](payload)
	if err == nil {
		handle(v)
	}
	return err
}
