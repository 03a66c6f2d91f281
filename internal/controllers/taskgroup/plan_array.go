package taskgroup

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// maxIndexTasks bounds the Tasks of single indexes of an array. More failed indexes wait in their
// ranges.
const maxIndexTasks = 1000

// planArray decides about the indexes of an array.
func (p *plan) planArray() {
	if p.Array == nil {
		return
	}
	p.planRequeuedIndexes()
	p.planIndexTasks()
	p.planBlockedRanges()
}

// planRequeuedIndexes follows a requeue of the job as far as the Tasks do not follow it themselves.
func (p *plan) planRequeuedIndexes() {
	for _, name := range p.Array.Replaced {
		p.out.Delete = append(p.out.Delete, name)
		p.out.Reasons = append(p.out.Reasons, "delete "+name+": its range runs the index again")
	}
	for _, c := range p.Array.RunAgain {
		p.out.ChangeRanges = append(p.out.ChangeRanges, c)
		p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("run indexes %s of %s again: the job is requeued", c.RunAgain, c.Task))
	}
	p.createIndexTasks(p.Array.Requested, "the job is requeued")
}

// planIndexTasks decides which failed indexes of an array get a Task of their own.
func (p *plan) planIndexTasks() {
	if taskcounts.CanStartTasks(p.Job) {
		p.createIndexTasks(p.Array.NextUntried, "it failed in its range")
	}
}

// createIndexTasks creates Tasks of indexes as far as there is room, or makes room for them.
func (p *plan) createIndexTasks(all []IndexTask, why string) {
	if len(all) == 0 || p.Defect.isSet() || p.now.Before(p.RetryAt) {
		return
	}
	room := min(p.indexTaskRoom(), len(all))
	for _, t := range all[:room] {
		p.out.CreateIndexes = append(p.out.CreateIndexes, t)
		p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("create a task of index %d: %s", t.Index, why))
	}
	if room == 0 {
		for _, c := range p.Array.Foldable {
			p.out.ChangeRanges = append(p.out.ChangeRanges, c)
			p.out.Reasons = append(p.out.Reasons, fmt.Sprintf("delete %d completed tasks of indexes of %s, to make room", len(c.Delete), c.Task))
		}
	}
}

// indexTaskRoom returns how many Tasks of single indexes this plan may create. The other half of the
// window is left to the ranges.
func (p *plan) indexTaskRoom() int {
	have := p.Array.IndexTasks
	return max(min(maxIndexTasks-have.Total, (p.Window+1)/2-(have.Total-have.TerminalCount()), p.maxReplicas())-len(p.out.CreateIndexes), 0)
}

// planBlockedRanges evicts ranges from blocked robots: a range has many indexes left, which would fail
// there, too.
func (p *plan) planBlockedRanges() {
	for _, m := range p.RangesOnBlocked {
		if p.canEvict() && (m.Evict != m.Attempt || m.EvictWaits) {
			m.EvictWaits = false
			p.out.Evict = append(p.out.Evict, m)
			p.out.Reasons = append(p.out.Reasons, "evict "+m.Name+": robot "+m.Robot+" is blocked")
		}
	}
}

// untriedState returns the state in which failed indexes count that have no Task of their own: those
// that will get one have not failed for good.
func (p *plan) untriedState() lifecycle.TaskState {
	switch {
	case p.jobState().CancelsTasks():
		return lifecycle.TaskCanceled
	case p.isUntriedWaiting():
		return lifecycle.TaskSoftFailed
	}
	return lifecycle.TaskFailed
}

// isUntriedWaiting reports whether the untried indexes get Tasks: there is room for them, or will be
// when others have ended.
func (p *plan) isUntriedWaiting() bool {
	return p.Array.IndexTasks.SumOf(lifecycle.TaskFailed, lifecycle.TaskCanceled) < maxIndexTasks
}
