package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// The local actions of holds. With LocalHold and LocalRelease, a request without a UID is about the robot.
const (
	LocalHold       LocalAction = "hold"
	LocalRelease    LocalAction = "release"
	LocalReleaseAll LocalAction = "release-all"
)

// refusalPause is the shortest pause between two reports that an order for the same attempt is refused. The
// server repeats the order.
const refusalPause = time.Second

// beginHold keeps a task, or all tasks of the robot, from being interrupted. It is on the disk before the
// answer.
func (r *Runner) beginHold(q LocalRequest) (string, error) {
	next := *r.local.Read()
	hold := wire.Hold{ID: r.newID(), UID: q.UID, By: q.By, Reason: wire.TruncateText(q.Reason, wire.MaxHoldReason), Since: r.now().UTC()}
	if q.UID != "" {
		attempt := r.live[q.UID]
		if attempt == nil {
			return "", errors.New("the task has ended")
		}
		hold.Namespace, hold.Name = attempt.task.Metadata.Namespace, attempt.task.Metadata.Name
	}
	next.Holds = append(slices.Clone(next.Holds), hold)
	if err := checkHolds(next); err != nil {
		return "", err
	}
	if err := r.writeLocal(next); err != nil {
		return "", err
	}
	return r.describeNewHold(q.UID), nil
}

// checkHolds returns why the last hold cannot be added to the others. A target has one hold at most: with two,
// a release would leave one of them, or end both.
func checkHolds(s wire.LocalState) error {
	last := len(s.Holds) - 1
	for _, h := range s.Holds[:last] {
		if h.UID == s.Holds[last].UID {
			return fmt.Errorf("held already, by %s: %s", h.By, h.Reason)
		}
	}
	if len(s.Holds) > wire.MaxHolds {
		return fmt.Errorf("this robot has %d holds, which is the maximum; release some of them first, or hold the whole robot", last)
	}
	if text, err := json.Marshal(s); err != nil || len(text) > wire.MaxLocalState {
		return errors.New("the holds and stopped tasks of this robot are too large to be reported; release some of them first")
	}
	return nil
}

// describeNewHold returns what follows from a hold. A stop that has begun goes on.
func (r *Runner) describeNewHold(uid string) string {
	what := "this robot is held: rollouts, updates and preemption do not interrupt its tasks"
	if uid != "" {
		what = "held: rollouts, updates and preemption do not interrupt the task"
	}
	for _, attempt := range r.live {
		if isTarget := uid == "" || attempt.task.Metadata.UID == uid; isTarget && attempt.stopReason != "" {
			return what + "; what is being stopped already is stopped"
		}
	}
	return what + "; a cancel, a drain and a scale-down do"
}

// releaseHolds ends the hold of a task, or of the robot, or all holds.
func (r *Runner) releaseHolds(q LocalRequest) (string, error) {
	next := *r.local.Read()
	had := len(next.Holds)
	next.Holds = slices.DeleteFunc(slices.Clone(next.Holds), func(h wire.Hold) bool {
		return q.Action == LocalReleaseAll || h.UID == q.UID
	})
	released := had - len(next.Holds)
	if released == 0 {
		return describeNoHold(q), nil
	}
	if err := r.writeLocal(next); err != nil {
		return "", err
	}
	switch {
	case q.Action == LocalReleaseAll:
		return fmt.Sprintf("released %d of %d holds", released, had), nil
	case q.UID != "" && next.FindHold(q.UID) != nil:
		return "released, but the whole robot is held", nil
	case len(next.Holds) > 0:
		return fmt.Sprintf("released; %d other holds remain", len(next.Holds)), nil
	}
	return "released", nil
}

func describeNoHold(q LocalRequest) string {
	switch {
	case q.Action == LocalReleaseAll:
		return "there are no holds"
	case q.UID != "":
		return "the task is not held"
	}
	return "the robot is not held as a whole"
}

// dropEndedHolds removes the holds of tasks that are no longer on the robot. One that cannot be removed now
// is removed after the end of another task, or by the next agent.
func (r *Runner) dropEndedHolds() {
	next := *r.local.Read()
	hasEnded := func(h wire.Hold) bool { return h.UID != "" && r.live[h.UID] == nil }
	if !slices.ContainsFunc(next.Holds, hasEnded) {
		return
	}
	next.Holds = slices.DeleteFunc(slices.Clone(next.Holds), hasEnded)
	if err := r.writeLocal(next); err != nil {
		r.problems.Warn("the hold of a task that has ended cannot be removed, will retry", err)
	}
}

// refusalOf returns why the agent refuses a delete, as in wire.Status.Refused. It is empty if it acts. A stop
// that has begun goes on, and so does that of an attempt which a newer one replaces.
func (r *Runner) refusalOf(attempt *attempt, d wire.Dispatch) string {
	order := d.Interruption
	switch {
	case order == nil || attempt.stopReason != "" || d.Attempt != attempt.number:
		return ""
	case r.local.Read().FindHold(attempt.task.Metadata.UID) != nil:
		return wire.RefusedHeld
	case order.WindowSeconds != 0 && r.sinceBoot()-d.ReceivedAt >= windowOf(order):
		return wire.RefusedWindowClosed
	}
	return ""
}

// windowOf returns for how long the agent may act by an order, from its receipt.
func windowOf(order *wire.Interruption) time.Duration {
	return time.Duration(min(max(order.WindowSeconds, 0), wire.MaxWindowSeconds)) * time.Second
}

// reportRefusal answers an order that is refused. The report repeats the last one, which it replaces where
// that is not acknowledged, but later answers to dispatches do not contain it.
func (r *Runner) reportRefusal(p *plan, attempt *attempt, refusal string) {
	now := r.sinceBoot()
	if attempt.refusal == refusal && now-attempt.refusedAt < refusalPause {
		return
	}
	attempt.refusal, attempt.refusedAt = refusal, now
	s := r.answerDispatch(attempt)
	attempt.seqBase = max(attempt.lastReport.Seq, attempt.seqBase) + 1
	s.Seq, s.UpdatedAt, s.Refused = attempt.seqBase, r.now().UTC(), refusal
	p.reports = append(p.reports, s)
	r.log.Info("an order to interrupt a task is refused", "uid", s.TaskUID, "attempt", s.Attempt, "reason", refusal)
}
