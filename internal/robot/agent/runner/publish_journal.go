package runner

import (
	"cmp"
	"slices"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

// publishJournal publishes what this robot runs and has run, for a server that was restored from a
// backup. A dispatch that waits for the end of an earlier attempt is dropped: it would start after
// the journal was read, and the restored server sends what it needs again. A repeated request gets the
// same pages: an entry of a newer journal may be on a page that the server has already.
func (r *Runner) publishJournal(request uint64) {
	if len(r.published) == 0 || r.published[0].Request != request {
		for _, attempt := range r.live {
			attempt.nextDispatch = nil
		}
		r.published = wire.SplitJournal(request, r.now().UTC(), r.journalEntries())
	}
	r.journals.PublishJournal(r.published)
}

// journalEntries returns the live attempts, then the ended ones, the latest first. Attempts that
// were accepted in this round are not in the journal yet.
func (r *Runner) journalEntries() []wire.JournalEntry {
	var all []wire.JournalEntry
	for uid, attempt := range r.live {
		m := attempt.task.Metadata
		all = append(all, wire.JournalEntry{UID: uid, Attempt: attempt.number, State: wire.ReportRunning, Task: m.Namespace + "/" + m.Name})
	}
	ended := slices.DeleteFunc(r.journal.Entries(), func(e journal.Entry) bool { return !e.HasEnded() })
	slices.SortFunc(ended, func(a, b journal.Entry) int {
		return cmp.Or(b.Status.UpdatedAt.Compare(a.Status.UpdatedAt), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Attempt, b.Attempt))
	})
	for _, e := range ended {
		all = append(all, wire.JournalEntry{UID: e.UID, Attempt: e.Attempt, State: e.Status.State})
	}
	return all
}
