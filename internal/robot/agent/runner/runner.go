// Package runner decides what happens to each attempt that the server dispatches: it accepts
// or rejects it, prepares its directories and environment, starts its shim, and reports how
// it ended. After a restart it takes over the attempts of the agent before. It declares
// the interfaces of the parts that it uses, and knows nothing of MQTT.
package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/policy"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
	"k8s4r.io/k8s4r/internal/robot/agent/logship"
	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/isolation"
	"k8s4r.io/k8s4r/internal/robot/proc"
	"k8s4r.io/k8s4r/internal/robot/shim"
	"k8s4r.io/k8s4r/internal/robot/shim/supervisor"
)

// Config configures a Runner.
type Config struct {
	RobotID  string
	StateDir StateDir
	// TaskUser is the user of tasks that name none. If empty, they run as the agent's user.
	TaskUser     string
	Drivers      driver.Set
	DockerSocket string // of the Docker engine
	// Policy is the robot's own. If nil, there is none.
	Policy   policyReader
	Host     isolation.Host
	Journal  attemptJournal
	Shims    shimKeeper
	LastSeen deadlineKeeper
	Logs     logShipper
	Reports  reportQueue
	Journals journalPublisher
	Problems problemLog
	// Artifacts keeps the sources of artifacts. If nil, each task downloads its own.
	Artifacts artifactCache
	// Sealed keeps the secrets of tasks with offlineSecrets. If nil, they are kept in memory only.
	Sealed secretStore
	// QuotaInterval is the shortest pause between two scans of disks. If zero, 10 s.
	QuotaInterval time.Duration
	// KillLeftovers ends the processes that killed shims have left. If nil,
	// supervisor.KillLeftovers.
	KillLeftovers func([]supervisor.Leftover, time.Duration) (int, error)
	// SelfStopMargin is how long after the last moment at which its task should have stopped by itself
	// a shim is killed. If zero, 20 s.
	SelfStopMargin time.Duration
	// ProgressInterval is the shortest pause between two reports about a running range. If zero, 10 s.
	ProgressInterval time.Duration
	// DeadlinesGoOn is set if LastSeen has the last contact of an earlier boot. Otherwise tasks with a
	// self-stop deadline that ran in an earlier boot start no further run.
	DeadlinesGoOn bool
	// ContactTimeout is how long the robot has contact after the last heartbeat that the server has
	// acknowledged. If zero, 90 s.
	ContactTimeout time.Duration
	// Local is what people at the robot have decided. If nil, nothing.
	Local localStore
	// OnLocalChange is called after a change of Local. If nil, it is not. It must not block.
	OnLocalChange func()
	// Jitter returns what is added to the interval, which is less than its argument. If nil, a random
	// time.
	Jitter func(time.Duration) time.Duration
	Now    func() time.Time
	// SinceBoot is CLOCK_BOOTTIME. If nil, shim.SinceBoot.
	SinceBoot func() time.Duration
	// BootID identifies the boot of the robot. If empty, proc.BootID().
	BootID string
	Log    *slog.Logger
}

// policyReader returns the robot's policy as it is now, or nil if there is none (policyfile.Keeper).
type policyReader interface{ Read() *policy.Policy }

// attemptJournal remembers attempts across restarts (journal.Journal).
type attemptJournal interface {
	Append(records ...journal.Record) error
	Get(uid string, attempt int32) (journal.Entry, bool)
	Latest(uid string) (journal.Entry, bool)
	Entries() []journal.Entry
}

// shimKeeper starts, finds and stops the shims of tasks (supervisor.Supervisor).
type shimKeeper interface {
	Start(spec shim.Spec, name string) (*supervisor.Shim, error)
	Adopt(dir string) (*supervisor.Shim, shim.State, error)
	ReadState(s *supervisor.Shim) (shim.State, error)
	Stop(s *supervisor.Shim, cause string, grace time.Duration) error
	Pause(s *supervisor.Shim) error
	Kill(s *supervisor.Shim) error
	UpdateAttributes(s *supervisor.Shim, f wire.RobotAttributes) error
	Events() <-chan struct{}
	Updates() []supervisor.Update
}

// deadlineKeeper knows when the robot was last in contact (transport.LastSeen).
type deadlineKeeper interface {
	AddReader()
	Publish() error
	IsPastDeadline(stopAfter time.Duration) bool
}

// secretStore keeps the secrets of attempts for the next agent (sealed.Store).
type secretStore interface {
	Put(uid string, attempt int32, values wire.Secrets) error
	Get(uid string, attempt int32) (wire.Secrets, error) // nil: there are none
	Remove(uid string, attempt int32) error
	Sweep(keep func(uid string, attempt int32) bool) error
}

// artifactCache keeps the sources of artifacts (artifactcache.Cache). It must not block.
type artifactCache interface {
	// Lookup returns a file that may have the content.
	Lookup(c artifact.Content) (path string, ok bool)
	// Collect takes over a file that may have the content.
	Collect(c artifact.Content, path string)
}

// logShipper sends what attempts write to the server (logship.Shipper).
type logShipper interface {
	AddLog(a logship.Attempt, dir string)
	EndLog(a logship.Attempt)
}

// reportQueue repeats reports until they are acknowledged (transport.Outbox).
type reportQueue interface {
	Put(s wire.Status)
	Acknowledge(a wire.TaskAck)
	IsPending(uid string, attempt int32) bool
}

// journalPublisher publishes the journal for a server that was restored from a backup. It must not
// block.
type journalPublisher interface {
	PublishJournal(pages []wire.Journal)
}

// problemLog counts problems and logs each of them at a limited rate.
type problemLog interface {
	Warn(line string, err error)
	WarnDropped(what string, err error)
}

// Runner decides what happens to each attempt. One goroutine owns it: every round takes the
// messages that have arrived, writes to the journal what must not be forgotten, and only
// then starts processes and reports. One sync of the journal serves a whole round.
type Runner struct {
	robotID       string
	dirs          StateDir
	taskUser      string
	drivers       driver.Set
	dockerSocket  string
	policy        policyReader
	host          isolation.Host
	journal       attemptJournal
	shims         shimKeeper
	lastSeen      deadlineKeeper
	logs          logShipper
	reports       reportQueue
	journals      journalPublisher
	problems      problemLog
	sealed        secretStore
	artifacts     artifactCache // nil: there is none
	killLeftovers func([]supervisor.Leftover, time.Duration) (int, error)
	now           func() time.Time
	sinceBoot     func() time.Duration
	bootID        string
	log           *slog.Logger
	local         localStore
	onLocalChange func()
	newID         func() string

	deadlinesGoOn    bool
	contactTimeout   time.Duration
	selfStopMargin   time.Duration
	progressInterval time.Duration
	jitter           func(time.Duration) time.Duration

	quotas *quotaWatcher
	usage  *usageMeter

	inbox chan message
	// requests of this robot have no buffer: each is received in a round that handles it, or never.
	requests     chan message
	stalled      atomic.Bool // the inbox is full and does not empty
	unwritable   atomic.Bool // the last write of the journal failed
	isConnected  atomic.Bool
	isSettingUp  atomic.Bool
	contacts     chan struct{} // readable when the robot may have contact again
	stopRequests chan time.Duration
	idle         chan struct{} // closed once all runs were stopped on request

	live          map[string]*attempt // by the task's UID
	byShim        map[*supervisor.Shim]*attempt
	newestList    robotEpoch
	sendsSecrets  bool           // the server acts on requests for secrets, by its newest list
	published     []wire.Journal // the answer to the last request for the journal
	contactLostAt time.Time      // zero: the robot had contact at the beginning of the round
	stopping      bool
	sharedSweptAt time.Time
}

// attempt is a live attempt, from its acceptance to its end, with one run of its process after another.
type attempt struct {
	task         wire.Task
	number       int32
	attributes   *wire.RobotAttributes // nil: the task uses none
	secrets      wire.Secrets          // until no further run needs them; never in the journal
	dispatchedAt robotEpoch
	array        *arrayRange // nil: the task runs no range of indexes
	restarts     *restarts   // nil: the manager restarts the task, not the agent
	trace        string      // of the dispatch; empty: it belongs to none, or an earlier agent received it
	// shim is nil until it was started, later in the round that accepted the attempt, and between two
	// runs.
	shim      *supervisor.Shim
	startedAt time.Time // of the process; zero: not started yet
	// isStartJournaled is set if the journal has the start of the run, from an earlier agent.
	isStartJournaled bool
	// mayLeaveContainer is set if a run may have been killed without its engine, which then keeps its container.
	mayLeaveContainer bool
	// stopReason is why no run must be started any more. If empty, it may.
	stopReason string
	// unsentStop is nil unless the shim could not be reached.
	unsentStop *unsentStop
	// restartedBy is the person at the robot who has restarted the run. Empty: none.
	restartedBy string
	lastReport  wire.Status // zero: none yet
	seqBase     uint64      // numbers up to it are used, by earlier agents and for refusals
	// refusal is the last reported answer to an order that this agent refuses, and refusedAt when that was,
	// since boot. Empty: none.
	refusal   string
	refusedAt time.Duration
	// nextDispatch is a newer attempt, which waits for the end of this one.
	nextDispatch *wire.Dispatch
}

// robotEpoch is when the server sent a dispatch or a task list. Epochs compare only for the
// same Robot object.
type robotEpoch struct {
	robotUID string
	epoch    uint64
}

func dispatchEpoch(d wire.Dispatch) robotEpoch {
	return robotEpoch{robotUID: d.RobotUID, epoch: d.Epoch}
}

// isBefore reports whether s is known to be older than t.
func (s robotEpoch) isBefore(t robotEpoch) bool { return s.robotUID == t.robotUID && s.epoch < t.epoch }

// attemptKey identifies one attempt of one task.
type attemptKey struct {
	uid     string
	attempt int32
}

// plan holds the decisions of a round. The records are written first.
type plan struct {
	records   []journal.Record
	histories []runHistory
	reports   []wire.Status
	starts    []*attempt
}

func (p *plan) isEmpty() bool {
	return len(p.records)+len(p.histories)+len(p.reports)+len(p.starts) == 0
}

// New returns a Runner. Recover must follow, then Run.
func New(c Config) *Runner {
	if c.QuotaInterval == 0 {
		c.QuotaInterval = defaultQuotaInterval
	}
	if c.Policy == nil {
		c.Policy = noPolicy{}
	}
	if c.Local == nil {
		c.Local = emptyLocalState{}
	}
	if c.OnLocalChange == nil {
		c.OnLocalChange = func() {}
	}
	if c.Sealed == nil {
		c.Sealed = noSecretStore{}
	}
	if c.Jitter == nil {
		c.Jitter = randomDuration
	}
	if c.SinceBoot == nil {
		c.SinceBoot = shim.SinceBoot
	}
	if c.KillLeftovers == nil {
		c.KillLeftovers = supervisor.KillLeftovers
	}
	return &Runner{
		robotID: c.RobotID, dirs: c.StateDir, taskUser: c.TaskUser, drivers: c.Drivers, dockerSocket: c.DockerSocket, policy: c.Policy, host: c.Host,
		journal: c.Journal, shims: c.Shims, lastSeen: c.LastSeen, logs: c.Logs, reports: c.Reports, journals: c.Journals, problems: c.Problems, sealed: c.Sealed, artifacts: c.Artifacts,
		killLeftovers: c.KillLeftovers, selfStopMargin: cmp.Or(c.SelfStopMargin, defaultSelfStopMargin), now: c.Now, sinceBoot: c.SinceBoot,
		bootID: cmp.Or(c.BootID, proc.BootID()), log: c.Log,
		local: c.Local, onLocalChange: c.OnLocalChange, newID: rand.Text,
		deadlinesGoOn: c.DeadlinesGoOn, contactTimeout: cmp.Or(c.ContactTimeout, defaultContactTimeout), contacts: make(chan struct{}, 1),
		progressInterval: cmp.Or(c.ProgressInterval, defaultProgressInterval), jitter: c.Jitter,
		quotas: newQuotaWatcher(c.QuotaInterval), usage: newUsageMeter(c.Host, c.Drivers),
		inbox: make(chan message, InboxSize), requests: make(chan message), stopRequests: make(chan time.Duration), idle: make(chan struct{}),
		live: map[string]*attempt{}, byShim: map[*supervisor.Shim]*attempt{},
	}
}

// Run works until ctx ends. It returns an error if the journal is broken.
func (r *Runner) Run(ctx context.Context) error {
	var selfStopCheck, progressCheck <-chan time.Time
	restartCheck := time.NewTimer(maxRestartSleep)
	defer restartCheck.Stop()
	for {
		r.scheduleRestarts(restartCheck)
		if wait, isNeeded := r.untilProgress(); progressCheck == nil && isNeeded {
			progressCheck = time.After(wait)
		}
		if selfStopCheck == nil && r.hasSelfStops() {
			selfStopCheck = time.After(r.selfStopMargin / 4)
		}
		var messages []message
		select {
		case <-ctx.Done():
			return nil
		case <-selfStopCheck:
			selfStopCheck = nil
			r.killOverdueShims()
		case <-progressCheck:
			progressCheck = nil
		case <-restartCheck.C:
		case <-r.contacts:
		case m := <-r.inbox:
			messages = r.gatherMessages(m)
		case q := <-r.requests:
			messages = append(r.gatherMessages(), q) // what was delivered before is handled before
		case grace := <-r.stopRequests:
			r.stopAllAttempts(grace)
		case <-r.shims.Events():
		}
		if err := r.runRound(ctx, messages); err != nil {
			return err
		}
	}
}

// scheduleRestarts sets the timer to when a run is due or a report may be sent.
func (r *Runner) scheduleRestarts(check *time.Timer) {
	if wait, isNeeded := r.untilRestart(); isNeeded {
		check.Reset(wait)
	} else {
		check.Stop()
	}
}

// WatchQuotas scans the disks of replicas with a quota until ctx ends.
func (r *Runner) WatchQuotas(ctx context.Context) {
	r.quotas.watchDisks(ctx, func(e diskExcess) { r.Deliver(e) })
}

// StopRequests returns the channel that stops all tasks and lets none start. A request is
// the longest time between SIGTERM and SIGKILL.
func (r *Runner) StopRequests() chan<- time.Duration { return r.stopRequests }

// Idle returns a channel that is closed once all tasks were stopped on request.
func (r *Runner) Idle() <-chan struct{} { return r.idle }

// CountAttempts returns the number of live attempts and of their shims. It must not be called while Run
// runs.
func (r *Runner) CountAttempts() int { return len(r.live) + len(r.byShim) }

// runRound handles messages and the events of shims. Messages come first: a run that has
// just ended must still be live for them, because the journal does not know its end yet.
func (r *Runner) runRound(ctx context.Context, messages []message) error {
	p := &plan{}
	r.recordContact(p)
	r.resendOrders()
	for _, m := range messages {
		r.handleMessage(p, m)
	}
	for _, n := range r.shims.Updates() {
		if err := r.handleShimEvent(p, n); err != nil {
			return err
		}
	}
	r.journalNoRuns(p)
	r.advanceWaits(p)
	r.requestSecrets(p)
	r.reportProgress(p)
	r.sendHeldReports(p)
	if err := r.executePlan(ctx, p); err != nil {
		return err
	}
	r.dropEndedHolds()
	r.isSettingUp.Store(r.hasSetUp())
	if r.stopping && len(r.live) == 0 {
		r.signalIdle()
	}
	return nil
}

func (r *Runner) signalIdle() {
	select {
	case <-r.idle:
	default:
		close(r.idle)
	}
}

// executePlan writes the records, queues the reports and starts the runs of a plan, and
// then executes the plan that results from the starts.
func (r *Runner) executePlan(ctx context.Context, p *plan) error {
	for !p.isEmpty() {
		if err := r.appendRecords(ctx, p.records); err != nil {
			return err
		}
		r.writeRunHistories(p.histories)
		for _, s := range p.reports {
			r.reports.Put(s)
		}
		follow := &plan{}
		for _, attempt := range p.starts {
			r.startRun(follow, attempt)
		}
		p = follow
	}
	return nil
}

// CanWriteJournal reports whether the last write of the journal succeeded.
func (r *Runner) CanWriteJournal() bool { return !r.unwritable.Load() }

// appendRetry is the pause before a failed write is repeated; as a rule the disk is full.
// Nothing is started or reported meanwhile; the deadlines of tasks still hold.
const appendRetry = time.Second

// appendRecords blocks until the journal has the records, ctx ends or the journal is broken.
func (r *Runner) appendRecords(ctx context.Context, recs []journal.Record) error {
	for {
		err := r.journal.Append(recs...)
		r.unwritable.Store(err != nil)
		if err == nil || errors.Is(err, journal.ErrBroken) {
			return err
		}
		r.problems.Warn("the journal cannot be written, will retry", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(appendRetry):
		}
	}
}
