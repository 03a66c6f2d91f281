package wire

import (
	"fmt"
	"time"
)

// The bounds of a journal that an agent publishes.
const (
	// MaxJournalPages bounds the pages of one journal.
	MaxJournalPages = 64
	// maxPageBytes bounds the entries of a page. It is below the size of a message, because a server
	// may limit the bytes that a robot sends in a second.
	maxPageBytes = 56 << 10
	// maxTaskName bounds JournalEntry.Task: two names of objects.
	maxTaskName = 2*253 + 1
)

// Journal is a page of an agent's journal (TaskList.JournalRequest).
type Journal struct {
	// Request is the number of the request.
	Request uint64 `json:"request"`
	// ReadAt is when the agent read its journal. Pages with different times do not belong together.
	ReadAt time.Time `json:"readAt"`
	// Page counts from 0, Pages is their number.
	Page    int            `json:"page"`
	Pages   int            `json:"pages"`
	Entries []JournalEntry `json:"entries"`
}

// JournalEntry is an attempt that a robot runs or has ended.
type JournalEntry struct {
	UID     string `json:"uid"`
	Attempt int32  `json:"attempt"`
	// State is ReportCompleted or ReportFailed after the end, ReportRunning before.
	State string `json:"state"`
	// Task is NAMESPACE/NAME of an attempt that runs. Only people read it.
	Task string `json:"task,omitempty"`
}

// SplitJournal returns the pages of a journal, at least one. Entries beyond MaxJournalPages are left
// out, so the most important ones come first.
func SplitJournal(request uint64, readAt time.Time, entries []JournalEntry) []Journal {
	pages, size := []Journal{{Request: request, ReadAt: readAt, Entries: []JournalEntry{}}}, 0
	for _, e := range entries {
		e.Task = TruncateText(e.Task, maxTaskName)
		n := e.maxEncodedSize()
		if size+n > maxPageBytes {
			if len(pages) == MaxJournalPages {
				break
			}
			pages, size = append(pages, Journal{Request: request, ReadAt: readAt, Page: len(pages), Entries: []JournalEntry{}}), 0
		}
		last := &pages[len(pages)-1]
		last.Entries, size = append(last.Entries, e), size+n
	}
	for i := range pages {
		pages[i].Pages = len(pages)
	}
	return pages
}

// maxEncodedSize bounds the size of the entry in JSON. A byte of a text takes up to 6.
func (e JournalEntry) maxEncodedSize() int {
	const keysAndNumber = 80
	return keysAndNumber + len(e.UID) + len(e.State) + 6*len(e.Task)
}

// Validate returns an error for a page that no agent publishes.
func (j Journal) Validate() error {
	if j.Pages < 1 || j.Pages > MaxJournalPages || j.Page < 0 || j.Page >= j.Pages {
		return fmt.Errorf("journal: page %d of %d, want at most %d pages", j.Page, j.Pages, MaxJournalPages)
	}
	for _, e := range j.Entries {
		if err := validateTaskUID(e.UID); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		if e.Attempt < 1 {
			return fmt.Errorf("journal: attempt %d is not positive", e.Attempt)
		}
	}
	return nil
}
