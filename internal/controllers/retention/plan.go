package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The limit that an object has reached, as in the metric.
const (
	limitAge   = "age"
	limitCount = "count"
)

const (
	// maxDeletes is the number of objects that one plan deletes. Each deletion also collects the
	// tasks of the job, which must not displace the work of the API server.
	maxDeletes = 100
	// batchInterval is the time until the next plan when there are more.
	batchInterval = time.Second
)

// Object is a finished object that the retention may delete.
type Object struct {
	// Kind is job, flow or vcjob.
	Kind       string
	FinishedAt time.Time
	// Archived is true if its end is in the archive.
	Archived bool
	Object   client.Object
}

// Input is what is known of one namespace.
type Input struct {
	Limits Limits
	// Archives is true if objects stay until they are archived.
	Archives bool
	// Finished are the objects that the retention may delete, in any order. They are shared with
	// the cache.
	Finished []Object
}

// Delete is the deletion of one object.
type Delete struct {
	Object
	Limit string
}

// Actions is what the controller does after a plan.
type Actions struct {
	Delete []Delete
	// RequeueAt is when to plan again without an event. If zero, never.
	RequeueAt time.Time
	// Reasons explain the deletions, for the log.
	Reasons []string
}

// Plan decides which objects are deleted: those that ended first.
func Plan(now time.Time, in Input) Actions {
	var out Actions
	if in.Limits.Age <= 0 {
		return out
	}
	finished := slices.SortedFunc(slices.Values(in.Finished), compareFinished)
	for i, o := range finished {
		expires := o.FinishedAt.Add(in.Limits.Age)
		limit := limitAge
		if now.Before(expires) {
			if in.Limits.Count <= 0 || i >= len(finished)-in.Limits.Count {
				out.RequeueAt = expires
				return out
			}
			limit = limitCount
		}
		if in.Archives && !o.Archived {
			continue // its mark triggers the next plan
		}
		if len(out.Delete) == maxDeletes {
			out.RequeueAt = now.Add(batchInterval)
			return out
		}
		out.Delete = append(out.Delete, Delete{o, limit})
		out.Reasons = append(out.Reasons, fmt.Sprintf("delete %s %s: %s", o.Kind, o.Object.GetName(), explainLimit(limit, in.Limits)))
	}
	return out
}

// compareFinished orders objects by their end. The name makes the order total.
func compareFinished(a, b Object) int {
	return cmp.Or(a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
}

func explainLimit(limit string, l Limits) string {
	if limit == limitCount {
		return fmt.Sprintf("it is the oldest of more than %d finished objects", l.Count)
	}
	return fmt.Sprintf("it ended more than %s ago", l.Age)
}
