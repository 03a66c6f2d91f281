package archive

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/lifecycle"
)

// World is all that a decision about one object depends on.
type World struct {
	// Object as it is, or as it was when it went.
	Object archive.Object
	// Gone: the object is no more.
	Gone bool
	// Noted is the mark of what this process has recorded of the object. Empty: nothing.
	Noted string
	// Ends: the object is of a kind that is marked when it has ended, and it has ended with
	// all that belongs to it.
	Ends bool
	// Archived: it is marked already.
	Archived bool
	// Parts that belong to an object that has ended.
	Parts []archive.Object
}

// Steps is what to do.
type Steps struct {
	// Record these, in this order, so that what is there with its end has all of its parts.
	Record []archive.Object
	// Deleted: note that the object is gone.
	Deleted bool
	// Mark the object as archived.
	Mark bool
	// Note is the mark to remember once that is done.
	Note string
}

// Plan decides what is to be recorded of one object.
func Plan(w World) Steps {
	out := Steps{Note: mark(&w.Object)}
	news := out.Note != w.Noted && (w.Noted != "" || begun(&w.Object))
	switch {
	case w.Gone:
		if news {
			out.Record = []archive.Object{w.Object}
		}
		// What has ended is gone in the end, and the tasks of a job go by the thousand.
		out.Deleted = w.Object.Outcome == "" && (news || w.Noted != "") || top(w.Object.Kind)
	case w.Archived:
	case w.Ends:
		out.Record = append(out.Record, w.Parts...)
		out.Record = append(out.Record, w.Object)
		out.Mark = true
	case news:
		out.Record = []archive.Object{w.Object}
	}
	return out
}

// mark is what must change for an object to be recorded again. Heartbeats, and what a task
// uses, do not count.
func mark(o *archive.Object) string {
	var attempt int64
	if n := len(o.Attempts); n > 0 {
		attempt = o.Attempts[n-1].Number
	}
	return fmt.Sprintf("%s %d %s %d", o.Phase, attempt, o.Robot, o.Finished.UnixMicro())
}

// begun tells whether there is something to tell of an object that is not in the archive. A
// task that waits, or is on its way to a robot, costs no write.
func begun(o *archive.Object) bool {
	if o.Kind != archive.Task {
		return o.Phase != ""
	}
	switch lifecycle.TaskState(o.Phase) {
	case lifecycle.TaskPending, lifecycle.TaskDispatching, lifecycle.TaskPaused:
		return len(o.Attempts) > 1
	default:
		return true
	}
}

// top tells whether objects of the kind belong to nothing that is archived with them.
func top(k archive.Kind) bool { return k != archive.Task && k != archive.TaskGroup }
