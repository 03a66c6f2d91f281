package archive

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// Input holds everything that a decision about one object depends on.
type Input struct {
	// Object is the current version, or the last one of a deleted object.
	Object archive.Object
	// Deleted is true if the object was deleted.
	Deleted bool
	// RecordedKey is the recordKey of the version that this process recorded last, or "".
	RecordedKey string
	// Complete is true if the object and all of its parts have ended, so that it can be
	// marked.
	Complete bool
	// Archived is true if the object is marked already.
	Archived bool
	// Parts are the objects that belong to an ended object.
	Parts []archive.Object
}

// Actions is what the controller does after one Plan.
type Actions struct {
	// Record these objects in order: an ended object is recorded after its parts.
	Record []archive.Object
	// RecordDeletion records that the object was deleted.
	RecordDeletion bool
	// MarkArchived marks the object as archived.
	MarkArchived bool
	// RecordKey is the key to remember after the record succeeded.
	RecordKey string
}

// Plan returns the actions for one object.
func Plan(w Input) Actions {
	out := Actions{RecordKey: recordKey(&w.Object)}
	hasChanged := out.RecordKey != w.RecordedKey && (w.RecordedKey != "" || isWorthRecording(&w.Object, w.Deleted))
	switch {
	case w.Deleted:
		if hasChanged {
			out.Record = []archive.Object{w.Object}
		}
		// Ended tasks are expected to be deleted, thousands at a time: save these writes.
		out.RecordDeletion = w.Object.Outcome == "" && (hasChanged || w.RecordedKey != "") || isTopLevel(w.Object.Kind)
	case w.Archived:
	case w.Complete:
		out.Record = append(out.Record, w.Parts...)
		out.Record = append(out.Record, w.Object)
		out.MarkArchived = true
	case hasChanged:
		out.Record = []archive.Object{w.Object}
	}
	return out
}

// recordKey returns the state whose change causes another record. It excludes heartbeats and
// resource usage.
func recordKey(o *archive.Object) string {
	var attempt int64
	if n := len(o.Attempts); n > 0 {
		attempt = o.Attempts[n-1].Number
	}
	return fmt.Sprintf("%s %d %s %d", o.Phase, attempt, o.Robot, o.Finished.UnixMicro())
}

// isWorthRecording reports whether an object that is not archived yet should be recorded.
// Tasks that have not started yet cost no write. Of a job that is deleted before its first status,
// tasks may have run.
func isWorthRecording(o *archive.Object, isDeleted bool) bool {
	if o.Kind != archive.Task {
		return o.Phase != "" || isDeleted && isTopLevel(o.Kind)
	}
	switch lifecycle.TaskState(o.Phase) {
	case lifecycle.TaskPending, lifecycle.TaskDispatching, lifecycle.TaskPaused:
		return len(o.Attempts) > 1
	default:
		return true
	}
}

// isTopLevel reports whether objects of the kind are archived on their own and not as parts
// of another object.
func isTopLevel(k archive.Kind) bool { return k != archive.Task && k != archive.TaskGroup }
