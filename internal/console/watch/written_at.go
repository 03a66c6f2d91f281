package watch

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// recent is the age below which a change is reported with the current time: timestamps of the API
// server have whole seconds and come from another clock.
const recent = 3 * time.Second

// latestTime returns the time of the last write that the API server tracked, or zero if there is
// none.
func latestTime(fields []metav1.ManagedFieldsEntry) (last time.Time) {
	for _, f := range fields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// writtenAt returns the time of the write after which old has become o, or now if that is recent or
// unknown. If tracked is zero, it is the newest time in the status that the object did not have
// before. If old is nil, the object is new.
func writtenAt(tracked time.Time, old *Item, o client.Object, now time.Time) time.Time {
	last, created := tracked, o.GetCreationTimestamp().Time
	if last.IsZero() {
		last = newestRecordedTime(old, o)
	}
	if old == nil && last.IsZero() {
		last = created
	}
	// The clock of a robot that has just started may be decades behind.
	if last.IsZero() || last.Before(created) || now.Sub(last) < recent {
		return now
	}
	return last
}

// newestRecordedTime returns the newest time that the status of an object has and that of old has not.
// It is zero if there is none.
func newestRecordedTime(old *Item, o client.Object) (newest time.Time) {
	var had []time.Time
	if old != nil {
		had = listRecordedTimes(old.Object)
	}
	for _, at := range listRecordedTimes(o) {
		if at.After(newest) && !slices.ContainsFunc(had, at.Equal) {
			newest = at
		}
	}
	return newest
}

// listRecordedTimes returns the times in the status of an object at which something has happened. The API
// server tracks the fields of other kinds, and of Jobs that no workflow has created.
func listRecordedTimes(o client.Object) (all []time.Time) {
	add := func(times ...*metav1.MicroTime) {
		for _, at := range times {
			if at != nil {
				all = append(all, at.Time)
			}
		}
	}
	var conditions []metav1.Condition
	switch o := o.(type) {
	case *v1alpha1.Task:
		s := &o.Status
		add(s.StartedAt, s.FinishedAt, s.LastRestartTime)
		for i := range s.Attempts {
			a := &s.Attempts[i]
			add(a.StartedAt, a.FinishedAt, a.RobotMissingSince)
			for j := range a.Runs { // NextRunAt is in the future
				add(a.Runs[j].StartedAt, a.Runs[j].FinishedAt)
			}
		}
		conditions = s.Conditions
	case *v1alpha1.TaskGroup:
		add(o.Status.StartedAt, o.Status.CompletedAt)
		conditions = o.Status.Conditions
	case *v1alpha1.Job:
		add(o.Status.StartedAt, o.Status.CompletedAt)
		conditions = o.Status.Conditions
	case *batchv1.Job:
		all = append(all, o.Status.State.LastTransitionTime.Time)
	}
	for i := range conditions {
		all = append(all, conditions[i].LastTransitionTime.Time)
	}
	return all
}
