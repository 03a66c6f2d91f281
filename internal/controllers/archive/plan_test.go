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
		in      World
		records int
		deleted bool
		marks   bool
	}{
		{name: "a task that waits costs no write", in: World{Object: object(archive.Task, "pending")}},
		{name: "nor one that is on its way", in: World{Object: attempts(object(archive.Task, "dispatching"), 1)}},
		{name: "one that has run before does", in: World{Object: attempts(object(archive.Task, "dispatching"), 2)}, records: 1},
		{name: "a task that runs is recorded", in: World{Object: running}, records: 1},
		{name: "once", in: World{Object: running, Noted: mark(&running)}},
		{name: "and when it has ended", in: World{Object: done, Noted: mark(&running)}, records: 1},
		{name: "and when it is put back", in: World{Object: object(archive.Task, "pending"), Noted: mark(&done)}, records: 1},
		{name: "and when it runs anew", in: World{Object: attempts(running, 2), Noted: mark(&running)}, records: 1},
		{name: "a job that nobody has looked at says nothing", in: World{Object: object(archive.Job, "")}},
		{name: "a job is recorded as it changes", in: World{Object: ended, Noted: mark(&job)}, records: 1},
		{name: "at its end with its parts, and marked", in: World{Object: ended, Noted: mark(&ended), Ends: true, Parts: []archive.Object{done, running}}, records: 3, marks: true},
		{name: "what is marked is done with", in: World{Object: ended, Ends: true, Archived: true}},
		{name: "a job that is gone is noted", in: World{Object: ended, Noted: mark(&ended), Gone: true}, deleted: true},
		{name: "as it was last", in: World{Object: ended, Noted: mark(&job), Gone: true}, records: 1, deleted: true},
		{name: "a task that had ended is not noted as gone", in: World{Object: done, Noted: mark(&done), Gone: true}},
		{name: "a task that went while it ran is", in: World{Object: running, Noted: mark(&running), Gone: true}, deleted: true},
		{name: "a task that went before it ran leaves nothing", in: World{Object: object(archive.Task, "pending"), Gone: true}},
	} {
		got := Plan(c.in)
		if len(got.Record) != c.records || got.Deleted != c.deleted || got.Mark != c.marks || got.Note != mark(&c.in.Object) {
			t.Errorf("%s: records %d, deleted %v, marks %v", c.name, len(got.Record), got.Deleted, got.Mark)
		}
		if n := len(got.Record); n > 0 && got.Record[n-1].UID != c.in.Object.UID {
			t.Errorf("%s: the object is not recorded last", c.name)
		}
	}
}
