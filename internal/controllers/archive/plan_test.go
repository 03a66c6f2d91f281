package archive

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func object(kind archive.Kind, phase string) archive.Object {
	o := archive.Object{Kind: kind, Name: string(kind), UID: string(kind), Version: 1, Phase: phase}
	if phase == "completed" {
		o.Outcome, o.Finished = archive.Succeeded, noon
	}
	return o
}

func attempts(o archive.Object, n int64) archive.Object {
	for i := range n {
		o.Attempts = append(o.Attempts, archive.Attempt{Number: i + 1})
	}
	return o
}

func TestPlan(t *testing.T) {
	running, done := object(archive.Task, "running"), object(archive.Task, "completed")
	job, ended := object(archive.Job, "running"), object(archive.Job, "completed")
	for _, c := range []struct {
		name    string
		in      Input
		records int
		deleted bool
		marks   bool
	}{
		{name: "a pending task is not recorded", in: Input{Object: object(archive.Task, "pending")}},
		{name: "a task in its first dispatch is not recorded", in: Input{Object: attempts(object(archive.Task, "dispatching"), 1)}},
		{name: "a task that has run before is recorded", in: Input{Object: attempts(object(archive.Task, "dispatching"), 2)}, records: 1},
		{name: "a running task is recorded", in: Input{Object: running}, records: 1},
		{name: "a running task is recorded once", in: Input{Object: running, RecordedKey: recordKey(&running)}},
		{name: "an ended task is recorded", in: Input{Object: done, RecordedKey: recordKey(&running)}, records: 1},
		{name: "a requeued task is recorded", in: Input{Object: object(archive.Task, "pending"), RecordedKey: recordKey(&done)}, records: 1},
		{name: "a second attempt is recorded", in: Input{Object: attempts(running, 2), RecordedKey: recordKey(&running)}, records: 1},
		{name: "a job without a state is not recorded", in: Input{Object: object(archive.Job, "")}},
		{name: "a job deleted before its first status is recorded", in: Input{Object: object(archive.Job, ""), Deleted: true}, records: 1, deleted: true},
		{name: "a changed job is recorded", in: Input{Object: ended, RecordedKey: recordKey(&job)}, records: 1},
		{name: "an ended job is recorded with its parts and marked", in: Input{Object: ended, RecordedKey: recordKey(&ended), Complete: true, Parts: []archive.Object{done, running}}, records: 3, marks: true},
		{name: "a marked job is left alone", in: Input{Object: ended, Complete: true, Archived: true}},
		{name: "the deletion of a job is recorded", in: Input{Object: ended, RecordedKey: recordKey(&ended), Deleted: true}, deleted: true},
		{name: "the last version of a deleted job is recorded", in: Input{Object: ended, RecordedKey: recordKey(&job), Deleted: true}, records: 1, deleted: true},
		{name: "the deletion of an ended task is not recorded", in: Input{Object: done, RecordedKey: recordKey(&done), Deleted: true}},
		{name: "the deletion of a running task is recorded", in: Input{Object: running, RecordedKey: recordKey(&running), Deleted: true}, deleted: true},
		{name: "a task deleted before it ran is not recorded", in: Input{Object: object(archive.Task, "pending"), Deleted: true}},
	} {
		got := Plan(c.in)
		if len(got.Record) != c.records || got.RecordDeletion != c.deleted || got.MarkArchived != c.marks || got.RecordKey != recordKey(&c.in.Object) {
			t.Errorf("%s: records %d, deleted %v, marks %v", c.name, len(got.Record), got.RecordDeletion, got.MarkArchived)
		}
		if n := len(got.Record); n > 0 && got.Record[n-1].UID != c.in.Object.UID {
			t.Errorf("%s: the object is not recorded last", c.name)
		}
	}
}
