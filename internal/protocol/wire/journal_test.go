package wire

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSplitJournal_PagesHoldEveryEntryInOrder checks with any journal that each page fits into a
// message, and that no entry is lost, repeated or moved.
func TestSplitJournal_PagesHoldEveryEntryInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) JournalEntry {
			return JournalEntry{
				UID:     rapid.StringMatching(`[a-z0-9]{1,63}`).Draw(t, "uid"),
				Attempt: rapid.Int32Min(1).Draw(t, "attempt"),
				State:   rapid.SampledFrom([]string{ReportRunning, ReportCompleted, ReportFailed}).Draw(t, "state"),
				Task:    strings.Repeat("\x00", rapid.IntRange(0, maxTaskName).Draw(t, "length")),
			}
		}), 0, 300).Draw(t, "entries")

		pages := SplitJournal(7, time.Unix(9, 0).UTC(), entries)
		var got []JournalEntry
		for i, p := range pages {
			payload, err := Encode(Heartbeat{Journal: &p})
			if err != nil {
				t.Fatalf("page %d: %v", i, err)
			}
			back, err := Decode[Heartbeat](payload)
			if err != nil || back.Journal.Validate() != nil {
				t.Fatalf("page %d: %v, %v", i, err, back.Journal.Validate())
			}
			if !back.Journal.ReadAt.Equal(time.Unix(9, 0)) || back.Journal.Page != i || back.Journal.Pages != len(pages) || back.Journal.Request != 7 {
				t.Fatalf("page %d is %d of %d for request %d", i, back.Journal.Page, back.Journal.Pages, back.Journal.Request)
			}
			got = append(got, back.Journal.Entries...)
		}
		if len(got) != len(entries) {
			t.Fatalf("%d entries, want %d", len(got), len(entries))
		}
		for i := range got {
			if got[i] != entries[i] {
				t.Fatalf("entry %d: %+v, want %+v", i, got[i], entries[i])
			}
		}
	})
}

func TestSplitJournal_IsBounded(t *testing.T) {
	entries := make([]JournalEntry, 200_000)
	for i := range entries {
		entries[i] = JournalEntry{UID: strings.Repeat("u", 36), Attempt: 1, State: ReportCompleted}
	}
	pages := SplitJournal(1, time.Time{}, entries)
	if len(pages) != MaxJournalPages {
		t.Fatalf("%d pages, want %d", len(pages), MaxJournalPages)
	}
	n := 0
	for _, p := range pages {
		n += len(p.Entries)
	}
	// The ended attempts that a journal keeps, and as many others.
	if n < 20_000 {
		t.Errorf("only %d entries fit", n)
	}
}

func TestJournal_Validate(t *testing.T) {
	ok := JournalEntry{UID: "uid", Attempt: 1, State: ReportRunning}
	for _, c := range []struct {
		name string
		page Journal
	}{
		{"no pages", Journal{}},
		{"a page beyond the last", Journal{Page: 2, Pages: 2}},
		{"a negative page", Journal{Page: -1, Pages: 1}},
		{"too many pages", Journal{Pages: MaxJournalPages + 1}},
		{"a uid with a slash", Journal{Pages: 1, Entries: []JournalEntry{ok, {UID: "a/b", Attempt: 1}}}},
		{"attempt 0", Journal{Pages: 1, Entries: []JournalEntry{{UID: "uid"}}}},
	} {
		if c.page.Validate() == nil {
			t.Errorf("%s is accepted", c.name)
		}
	}
	if err := (Journal{Pages: 1, Entries: []JournalEntry{ok}}).Validate(); err != nil {
		t.Error(err)
	}
}
