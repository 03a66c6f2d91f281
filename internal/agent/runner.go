package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/agent/logship"
	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/isolation"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// runner decides what becomes of each attempt. One goroutine owns it: every
// round takes in what has come, writes down what must not be forgotten, and
// only then starts processes and reports. One sync serves a whole round.
type runner struct {
	robot  string
	places places
	// taskUser is who tasks run as that name no user. Empty: who the agent is.
	taskUser string
	drivers  driver.Set
	engine   string // the Docker engine's unix socket
	host     isolation.Host
	journal  *journal.Journal
	append   func(...journal.Record) error // to the journal
	shims    keeper
	contact  *contact
	logs     logs
	quotas   *quotas
	out      *outbox
	noise    *noise
	now      func() time.Time
	log      *slog.Logger

	killLeftovers func([]shims.Leftover, time.Duration) (int, error) // shims.KillLeftovers

	inbox chan message
	halts chan time.Duration
	idle  chan struct{} // closed once stopping is done

	live     map[string]*run // by the task's UID
	byShim   map[*shims.Shim]*run
	listed   stamp // the newest task list
	stopping bool
	tidiedAt time.Time
}

// keeper starts, finds and stops the shims of tasks (shims.Keeper).
type keeper interface {
	Start(spec shim.Spec, name string) (*shims.Shim, error)
	Adopt(dir string) (*shims.Shim, shim.State, error)
	Stop(s *shims.Shim, cause string, grace time.Duration) error
	Tell(s *shims.Shim, f wire.RobotFacts) error
	Rings() <-chan struct{}
	News() []shims.News
}

// logs sends what attempts write to the server (logship.Shipper).
type logs interface {
	Add(a logship.Attempt, dir string)
	Ended(a logship.Attempt)
}

// message is what the server says, a wire.Dispatch, wire.TaskList or wire.Ack, or of
// our own a question or an excess.
type message any

// run is an attempt that is alive, from its acceptance to its end.
type run struct {
	task    wire.Task
	attempt int32
	facts   *wire.RobotFacts // nil: it asked for none
	secrets wire.Secrets     // until its shim has them; never in the journal
	said    stamp            // the dispatch
	trace   string           // of the dispatch; empty: it is in none, or an agent before had it
	// shim is nil until it has been started, which is later in the round that
	// accepted the attempt.
	shim      *shims.Shim
	startedAt time.Time // zero: not yet
	// stop is why it shall not be started any more. Empty: it shall.
	stop    string
	status  wire.Status // the last report; zero: none yet
	seqBase uint64      // above what agents before have reported
	// next is a newer attempt, which waits for the end of this one.
	next *wire.Dispatch
}

// stamp says when the server said something. Epochs compare only within one
// era: those of another are as good as long ago.
type stamp struct {
	era   string
	epoch uint64
}

func stampOf(d wire.Dispatch) stamp { return stamp{era: d.Era, epoch: d.Epoch} }

// before tells whether s is known to be older than t.
func (s stamp) before(t stamp) bool { return s.era == t.era && s.epoch < t.epoch }

// plan is what a round has decided. The records are written first.
type plan struct {
	records []journal.Record
	reports []wire.Status
	start   []*run
}

func (p *plan) empty() bool { return len(p.records)+len(p.reports)+len(p.start) == 0 }

// inboxSize lets a burst of messages share one sync.
const inboxSize = 64

func newRunner(c Config, j *journal.Journal, held keeper, contact *contact, logs logs, out *outbox, log *slog.Logger, now func() time.Time) *runner {
	return &runner{
		robot: c.RobotID, places: places{c.StateDir}, taskUser: c.TaskUser, drivers: driver.Builtin(c.DockerSocket), engine: c.DockerSocket, journal: j, append: j.Append, shims: held, contact: contact, logs: logs, quotas: newQuotas(),
		out: out, noise: newNoise(log, now), now: now, log: log, killLeftovers: shims.KillLeftovers,
		inbox: make(chan message, inboxSize), halts: make(chan time.Duration), idle: make(chan struct{}),
		live: map[string]*run{}, byShim: map[*shims.Shim]*run{},
	}
}

// loop runs until ctx ends. It fails when the journal can be trusted no more.
func (r *runner) loop(ctx context.Context) error {
	for {
		var messages []message
		select {
		case <-ctx.Done():
			return nil
		case m := <-r.inbox:
			messages = r.gather(m)
		case grace := <-r.halts:
			r.halt(grace)
		case <-r.shims.Rings():
		}
		if err := r.round(ctx, messages); err != nil {
			return err
		}
	}
}

// gather takes what else is waiting.
func (r *runner) gather(first message) []message {
	all := []message{first}
	for len(all) < inboxSize {
		select {
		case m := <-r.inbox:
			all = append(all, m)
		default:
			return all
		}
	}
	return all
}

// round takes in messages and what shims say. Messages come first: what has just
// ended, they must still find among the living, for the journal does not know its
// end yet.
func (r *runner) round(ctx context.Context, messages []message) error {
	p := &plan{}
	for _, m := range messages {
		r.take(p, m)
	}
	for _, n := range r.shims.News() {
		if err := r.heard(p, n); err != nil {
			return err
		}
	}
	if err := r.carryOut(ctx, p); err != nil {
		return err
	}
	if r.stopping && len(r.live) == 0 {
		r.settle()
	}
	return nil
}

func (r *runner) settle() {
	select {
	case <-r.idle:
	default:
		close(r.idle)
	}
}

func (r *runner) take(p *plan, m message) {
	switch m := m.(type) {
	case wire.Dispatch:
		r.dispatch(p, m)
	case wire.TaskList:
		r.list(p, m)
	case wire.Ack:
		r.ack(p, m)
	case excess:
		r.exceeded(m)
	case question:
		m.answer <- r.survey()
	}
}

// carryOut writes down, reports and starts what was planned, and what follows
// from that.
func (r *runner) carryOut(ctx context.Context, p *plan) error {
	for !p.empty() {
		if err := r.commit(ctx, p.records); err != nil {
			return err
		}
		for _, s := range p.reports {
			r.out.put(s)
		}
		follow := &plan{}
		for _, run := range p.start {
			r.start(follow, run)
		}
		p = follow
	}
	return nil
}

// commitRetry is the pause before a write is tried again that the disk
// refused, for want of space as a rule. Nothing is started or reported
// meanwhile; deadlines are kept all the same.
const commitRetry = time.Second

func (r *runner) commit(ctx context.Context, recs []journal.Record) error {
	for {
		err := r.append(recs...)
		if err == nil || errors.Is(err, journal.ErrBroken) {
			return err
		}
		r.noise.warn("the journal cannot be written, will try again", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(commitRetry):
		}
	}
}
