package journal

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

func aboutToRun(uid string, run int64) Record {
	return Record{Kind: Run, UID: uid, Attempt: 1, At: epoch, BootID: fmt.Sprint("boot-", run), Run: run}
}

func runEnded(uid string, run int64) Record {
	status := wire.Status{State: wire.ReportFailed, ExitCode: 3, Reason: wire.ReasonExited, Run: run}
	for n := range run {
		status.Runs = append(status.Runs, wire.Run{Run: n + 1, StartedAt: &epoch, FinishedAt: &epoch, ExitCode: 3, Reason: wire.ReasonExited})
	}
	return Record{
		Kind: RunEnded, UID: uid, Attempt: 1, At: epoch, BootID: fmt.Sprint("boot-", run), Status: &status,
		Restart: &Restart{EndedSinceBoot: time.Minute, Wait: time.Second, Restarts: int32(run), Age: time.Hour, EndsWithContact: run > 1},
	}
}

func noRun(uid, reason string) Record {
	return Record{Kind: NoRun, UID: uid, Attempt: 1, At: epoch, Reason: reason}
}

// A history is the records of one attempt and what is known after each of them.
func TestJournal_KnowsTheRunsOfAnAttempt(t *testing.T) {
	with := func(r Record, a wire.RobotAttributes) Record {
		r.Attributes = &a
		return r
	}
	floor := wire.RobotAttributes{Labels: map[string]string{"floor": "1"}}
	for name, test := range map[string]struct {
		records   []Record
		run, last int64 // last: the run of LastEnd
		awaits    bool
		process   bool
		floor     string
		noRun     string
	}{
		"by an agent without restarts":      {records: []Record{accepted("a", 1), started("a", 1)}, process: true},
		"accepted":                          {records: []Record{accepted("a", 1), aboutToRun("a", 1)}, run: 1},
		"the first run":                     {records: []Record{accepted("a", 1), aboutToRun("a", 1), started("a", 1)}, run: 1, process: true},
		"between two runs":                  {records: []Record{accepted("a", 1), aboutToRun("a", 1), started("a", 1), runEnded("a", 1)}, run: 1, last: 1, awaits: true},
		"the second is about to start":      {records: []Record{accepted("a", 1), aboutToRun("a", 1), started("a", 1), runEnded("a", 1), aboutToRun("a", 2)}, run: 2, last: 1},
		"the second run":                    {records: []Record{accepted("a", 1), aboutToRun("a", 1), started("a", 1), runEnded("a", 1), aboutToRun("a", 2), started("a", 1)}, run: 2, last: 1, process: true},
		"after the second":                  {records: []Record{accepted("a", 1), aboutToRun("a", 1), runEnded("a", 1), aboutToRun("a", 2), runEnded("a", 2)}, run: 2, last: 2, awaits: true},
		"with attributes of the robot":      {records: []Record{accepted("a", 1), with(aboutToRun("a", 1), floor), runEnded("a", 1), aboutToRun("a", 2)}, run: 2, last: 1, floor: "1"},
		"a run that ended without its rest": {records: []Record{accepted("a", 1), aboutToRun("a", 1), {Kind: RunEnded, UID: "a", Attempt: 1}}, run: 1},
		"paused":                            {records: []Record{accepted("a", 1), aboutToRun("a", 1), noRun("a", wire.ReasonPaused)}, run: 1, noRun: wire.ReasonPaused},
		"resumed":                           {records: []Record{accepted("a", 1), aboutToRun("a", 1), noRun("a", wire.ReasonPaused), noRun("a", "")}, run: 1},
		"paused and ended":                  {records: []Record{accepted("a", 1), aboutToRun("a", 1), noRun("a", wire.ReasonPaused), ended("a", 1)}, run: 1},
		"ended":                             {records: []Record{accepted("a", 1), with(aboutToRun("a", 1), floor), runEnded("a", 1), aboutToRun("a", 2), ended("a", 1)}, run: 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, Options{})
			add(t, j, test.records...)
			_ = j.Close()
			j = open(t, dir, Options{})
			e, _ := j.Get("a", 1)
			last, floor := int64(0), ""
			if e.LastEnd != nil {
				last = e.LastEnd.Status.Run
			}
			if e.Attributes != nil {
				floor = e.Attributes.Labels["floor"]
			}
			if e.Run != test.run || last != test.last || e.AwaitsRun() != test.awaits || (e.Process != nil) != test.process || floor != test.floor || e.NoRunReason != test.noRun {
				t.Errorf("entry %+v, want run %d after %d, waiting %t, process %t, floor %q, no run for %q", e, test.run, test.last, test.awaits, test.process, test.floor, test.noRun)
			}
			requireSameAfterCompaction(t, j, dir)
		})
	}
}

// requireSameAfterCompaction compares the entries with those of the compacted file.
func requireSameAfterCompaction(t *testing.T, j *Journal, dir string) {
	t.Helper()
	want := sorted(j.Entries())
	if err := j.compactFile(); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	if got := sorted(open(t, dir, Options{}).Entries()); !reflect.DeepEqual(got, want) {
		t.Errorf("after compaction\n%+v, want\n%+v", got, want)
	}
}

func TestJournal_RunsAreOnTheDiskBeforeTheyStart(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	for i, r := range []Record{accepted("a", 1), aboutToRun("a", 1), runEnded("a", 1), aboutToRun("a", 2), noRun("a", wire.ReasonStopped)} {
		if add(t, j, r); j.syncs != uint64(i+1) {
			t.Errorf("%d syncs after %s, want %d", j.syncs, r.Kind, i+1)
		}
	}
}

func TestOpen_AcceptsEveryPrefixOfRuns(t *testing.T) {
	checkEveryPrefix(t, []Record{
		accepted("a", 1), aboutToRun("a", 1), started("a", 1), runEnded("a", 1), aboutToRun("a", 2), started("a", 1), runEnded("a", 2), noRun("a", wire.ReasonStopped), ended("a", 1),
	})
}

// An agent of an earlier version finds its own records only. So it takes the attempt for one whose process
// was started, and ends it.
func TestJournal_EarlierAgentsSkipTheKindsOfRuns(t *testing.T) {
	x := index{}
	for _, r := range []Record{accepted("a", 1), started("a", 1), {Kind: "a later kind", UID: "a", Attempt: 1}} {
		x.applyRecord(r)
	}
	if e := x["a"][1]; e.Process == nil || e.HasEnded() || e.Task == nil {
		t.Errorf("after a record of an unknown kind: %+v", e)
	}
}
