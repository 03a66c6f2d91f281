package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/agent/logship"
	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/proc"
	"k8s4r.io/k8s4r/internal/wire"
)

// leftoverWait bounds the wait for processes that were sent SIGKILL.
const leftoverWait = 10 * time.Second

// seqsPerAgent is more reports than one agent ever makes about an attempt.
const seqsPerAgent = 1 << 32

// recover takes over what an earlier agent left. Reports that the server has not
// written down yet go out again.
func (r *runner) recover() error {
	entries := r.journal.Entries()
	slices.SortFunc(entries, func(a, b journal.Entry) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	p := &plan{}
	var lost []abandoned
	for _, e := range entries {
		r.follow(e)
		switch {
		case !e.Ended():
			run, err := r.adopt(p, e)
			if err != nil {
				return fmt.Errorf("take over task %s, attempt %d: %w", e.UID, e.Attempt, err)
			}
			if run != nil {
				lost = append(lost, *run)
			}
		case !e.Acked():
			p.reports = append(p.reports, *e.Status)
		}
	}
	if err := errors.Join(r.clear(p, lost), r.sweepCgroups()); err != nil {
		return err
	}
	if err := r.append(p.records...); err != nil {
		return err
	}
	for _, s := range p.reports {
		r.out.put(s)
	}
	return nil
}

// follow goes on sending the log of an attempt. The server has all of one whose
// directory is gone.
func (r *runner) follow(e journal.Entry) {
	dir, a := r.places.logs(e.UID, e.Attempt), logship.Attempt{UID: e.UID, Attempt: e.Attempt}
	if _, err := os.Stat(dir); err != nil {
		return
	}
	if r.logs.Add(a, dir); e.Ended() {
		r.logs.Ended(a)
	}
}

// sweepCgroups ends what runs in control groups of no living attempt.
func (r *runner) sweepCgroups() error {
	if r.host.Tree == nil {
		return nil
	}
	used := map[string]bool{}
	for uid, run := range r.live {
		used[cgroupName(uid, run.attempt)] = true
	}
	swept, err := r.host.Tree.Sweep(func(name string) bool { return used[name] }, leftoverWait)
	if len(swept) > 0 {
		r.log.Warn("control groups of tasks that nobody knows were ended", "groups", swept)
	}
	return err
}

// adopt takes over an attempt that has not ended by the journal's word. It runs on
// if its shim lives, and else has ended as that has said. It is returned when its
// shim was killed.
func (r *runner) adopt(p *plan, e journal.Entry) (*abandoned, error) {
	held, state, err := r.shims.Adopt(r.places.shim(e.UID, e.Attempt))
	if err != nil {
		return nil, err
	}
	record := journal.Record{Kind: journal.Adopted, UID: e.UID, Attempt: e.Attempt, At: r.now().UTC()}
	if held == nil && !state.Begun && state.Exit == nil && e.Process == nil && e.BootID == proc.BootID() {
		// It has never run, and the server sends it again.
		record.Kind = journal.Dropped
		p.records = append(p.records, record)
		return nil, nil
	}
	p.records = append(p.records, record)
	run := r.resumed(e)
	if held != nil {
		r.live[e.UID] = run
		r.hold(run, held)
		r.contact.watched(run.task.Spec)
		return nil, r.heard(p, shims.News{Shim: held, State: state})
	}
	if state.Started != nil {
		run.startedAt = state.Started.At.UTC()
	}
	// What it had not written down when the power went may be lost, so it may
	// have run even if it has not said so.
	state.Begun = true
	s, known := conclusion(state)
	if !known {
		return &abandoned{run, state.Started}, nil
	}
	r.finish(p, run, s)
	return nil, nil
}

// resumed is the run of an attempt that an earlier agent accepted.
func (r *runner) resumed(e journal.Entry) *run {
	run := &run{attempt: e.Attempt, seqBase: (e.Adoptions + 1) * seqsPerAgent}
	if e.Task != nil {
		run.task = *e.Task
	} else {
		run.task = wire.Task{Metadata: wire.TaskMeta{UID: e.UID}}
	}
	if e.Said != nil {
		run.said = stamp{era: e.Said.Era, epoch: e.Said.Epoch}
	}
	return run
}
