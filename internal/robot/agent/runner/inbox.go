package runner

import (
	"context"
	"errors"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// InboxSize is how many messages wait for a round, so that a burst shares one sync of the
// journal.
const InboxSize = 64

// deliverTimeout is how long a message waits for the runner, which is busy that long only
// if the disk does not accept writes of the journal.
const deliverTimeout = 10 * time.Second

// message is a wire.Dispatch, wire.TaskList or wire.Ack of the server, or a taskQuery,
// LocalRequest or diskExcess of the agent.
type message any

// taskQuery asks the runner for its live tasks. The channel has room for one reply.
type taskQuery struct{ reply chan<- []LiveTask }

// errStalled is the reason why a valid message is dropped.
var errStalled = errors.New("the agent cannot write its journal and its queue is full")

// errBusy reports that the runner does not handle messages, because as a rule the disk
// does not accept writes of the journal.
var errBusy = errors.New("the agent cannot write its journal and accepts no tasks")

// Deliver gives a message to the runner: a wire.Dispatch, wire.TaskList or wire.Ack. Once a
// message has timed out, the next ones are dropped at once until there is room: the
// server repeats what matters, and a queue of repetitions does not help a full disk.
func (r *Runner) Deliver(m message) {
	if r.stalled.Load() {
		select {
		case r.inbox <- m:
			r.stalled.Store(false)
		default:
			r.problems.WarnDropped("message", errStalled)
		}
		return
	}
	select {
	case r.inbox <- m:
	case <-time.After(deliverTimeout):
		r.stalled.Store(true)
		r.problems.WarnDropped("message", errStalled)
	}
}

// gatherMessages returns these messages and those that wait behind them.
func (r *Runner) gatherMessages(all ...message) []message {
	for len(all) < InboxSize {
		select {
		case m := <-r.inbox:
			all = append(all, m)
		default:
			return all
		}
	}
	return all
}

func (r *Runner) handleMessage(p *plan, m message) {
	switch m := m.(type) {
	case wire.Dispatch:
		r.handleDispatch(p, m)
	case wire.TaskList:
		r.handleTaskList(p, m)
	case wire.Ack:
		r.handleAck(p, m)
	case diskExcess:
		r.stopReplica(m)
	case LocalRequest:
		r.handleLocalRequest(p, m)
	case unlockRequest:
		r.handleUnlock(p, m)
	case taskQuery:
		m.reply <- r.listLiveTasks()
	}
}

// ListTasks returns the live tasks in the order of their UIDs, with what they used at the
// last heartbeat. It returns an error if the runner does not reply before ctx ends.
func (r *Runner) ListTasks(ctx context.Context) ([]LiveTask, error) {
	tasks, err := r.queryTasks(ctx)
	r.usage.fillUsage(tasks)
	return tasks, err
}

// MeasureUsage measures all tasks, and returns the usage that the server must know.
func (r *Runner) MeasureUsage(ctx context.Context) []wire.TaskUsage {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	tasks, err := r.queryTasks(ctx)
	if err != nil {
		return nil // the next heartbeat tries again
	}
	return r.usage.measureTasks(tasks, r.now())
}

func (r *Runner) queryTasks(ctx context.Context) ([]LiveTask, error) {
	reply := make(chan []LiveTask, 1)
	select {
	case r.requests <- taskQuery{reply}: // not the inbox, which queries without a reader would fill
	case <-ctx.Done():
		return nil, errBusy
	}
	select {
	case tasks := <-reply:
		return tasks, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}
