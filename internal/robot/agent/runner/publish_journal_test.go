package runner

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/journal"
)

// keptJournals keeps what the runner publishes.
type keptJournals struct{ pages []wire.Journal }

func (k *keptJournals) PublishJournal(pages []wire.Journal) { k.pages = pages }

// TestTaskList_OfRestoredServerStopsNothing shows that a run that the backup does not have goes on
// until the server has read the robot's journal, and that the next list stops it.
func TestTaskList_OfRestoredServerStopsNothing(t *testing.T) {
	j, err := journal.Open(t.TempDir(), journal.Options{})
	must(t, err)
	defer j.Close()
	live, waits := shell("live", "sleep 600"), shell("live", "sleep 600")
	must(t, j.Append(journal.Record{Kind: journal.Accepted, UID: "live", Attempt: 3, At: time.Now(), Task: &live}))
	for _, s := range []wire.Status{{TaskUID: "old", Attempt: 1, State: wire.ReportFailed, UpdatedAt: time.Unix(1, 0)}, {TaskUID: "new", Attempt: 2, State: wire.ReportCompleted, UpdatedAt: time.Unix(2, 0)}} {
		must(t, j.Append(journal.Record{Kind: journal.Ended, UID: s.TaskUID, Attempt: s.Attempt, Status: &s}, journal.Record{Kind: journal.Acked, UID: s.TaskUID, Attempt: s.Attempt, At: time.Now()}))
	}
	published := &keptJournals{}
	r := New(Config{RobotID: robot, StateDir: StateDir(t.TempDir()), Journal: j, Shims: noShims{}, Logs: noLogs{}, Reports: noReports{}, Journals: published, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	attempt := &attempt{task: live, number: 3, dispatchedAt: robotEpoch{"uid", 10}, nextDispatch: &wire.Dispatch{Task: waits, Attempt: 4, Epoch: 11, RobotUID: "uid"}}
	r.live["live"] = attempt

	r.handleTaskList(&plan{}, wire.TaskList{RobotUID: "uid", Epoch: 1_000_000, JournalRequest: 42})
	if attempt.stopReason != "" {
		t.Errorf("an incomplete list stops the run: %s", attempt.stopReason)
	}
	if attempt.nextDispatch != nil {
		t.Error("a dispatch of the server before the restore can still start")
	}
	want := []wire.JournalEntry{
		{UID: "live", Attempt: 3, State: wire.ReportRunning, Task: "default/task-live"},
		{UID: "new", Attempt: 2, State: wire.ReportCompleted},
		{UID: "old", Attempt: 1, State: wire.ReportFailed},
	}
	if len(published.pages) != 1 || published.pages[0].Request != 42 || len(published.pages[0].Entries) != len(want) {
		t.Fatalf("published %+v, want %+v", published.pages, want)
	}
	for i, e := range published.pages[0].Entries {
		if e != want[i] {
			t.Errorf("entry %d: %+v, want %+v", i, e, want[i])
		}
	}

	before := published.pages
	must(t, j.Append(journal.Record{Kind: journal.Ended, UID: "newest", Attempt: 1, Status: &wire.Status{TaskUID: "newest", Attempt: 1, State: wire.ReportCompleted}}))
	r.handleTaskList(&plan{}, wire.TaskList{RobotUID: "uid", Epoch: 1_000_000, JournalRequest: 42})
	if !reflect.DeepEqual(published.pages, before) {
		t.Errorf("the repeated request got %+v, want the pages of the first", published.pages)
	}

	r.handleTaskList(&plan{}, wire.TaskList{RobotUID: "uid", Epoch: 1_000_001})
	if attempt.stopReason != wire.ReasonStopped {
		t.Errorf("the complete list does not stop the run, whose task is gone: %q", attempt.stopReason)
	}
}
