package rollout

import (
	"cmp"
	"slices"
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// The retries of robots that could not fetch everything.
const (
	PrefetchRetryAfter  = 15 * time.Minute
	MaxPrefetchAttempts = 3
)

// PrefetchReportTime is how long a robot in contact keeps its turn without a report. It may ask again after
// PrefetchRetryAfter.
const PrefetchReportTime = 10 * time.Minute

// PrefetchRobot is a robot as far as prefetching for one Rollout is concerned.
type PrefetchRobot struct {
	Name string
	// Groups are those of which the robot runs or would run tasks, and does not run the new revision yet. If
	// empty, it needs nothing.
	Groups []string
	// IsOnline reports whether the robot is in contact, and CanPrefetch whether its agent supports orders.
	IsOnline, CanPrefetch bool
	// Order of the robot. If nil, it has none. HasForeignOrder reports whether it is that of another Rollout
	// which still needs it.
	Order           *v1alpha1.RobotPrefetchOrder
	HasForeignOrder bool
	// Report about the Rollout. If nil, there is none.
	Report *v1alpha1.RobotPrefetch
	// OrderedAt is since when the robot was seen in contact with an order about which it has not reported. Zero
	// without such an order.
	OrderedAt time.Time
	// SilentAt is when it last lost its turn because of that. Zero if it never did.
	SilentAt time.Time
}

// AwaitsReport reports whether the robot is in contact and has not reported about its order for a Rollout.
func (p *PrefetchRobot) AwaitsReport(r *v1alpha1.Rollout) bool {
	return p.isOrdered(r) && p.IsOnline && (p.Report == nil || p.Report.Attempt < p.Order.Attempt)
}

func (p *PrefetchRobot) isOrdered(r *v1alpha1.Rollout) bool {
	return p.Order != nil && p.Order.ID == string(r.UID)
}

// PrefetchPlan is what to write for a Rollout.
type PrefetchPlan struct {
	// Orders are to be written, by robot. A nil order is removed.
	Orders map[string]*v1alpha1.RobotPrefetchOrder
	// Prefetched is how many robots have fetched everything.
	Prefetched int32
	// RequeueAt is when a robot may try again. If zero, with the next change.
	RequeueAt time.Time
}

// IsPrefetching reports whether robots fetch in advance for a Rollout: it has found its revision, and is not
// paused and has not ended.
func IsPrefetching(r *v1alpha1.Rollout) bool {
	if !r.Spec.Prefetch || r.Status.Revision == 0 || r.DeletionTimestamp != nil {
		return false
	}
	switch r.Status.Phase {
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaitingForApproval, v1alpha1.RolloutPausing:
		return true
	}
	return false
}

// PlanPrefetch decides which robots fetch now what a Rollout needs, in the order of the Rollout. A robot has its
// turn until it reports the end, loses contact or does not report for too long. Except for that time, the
// plan depends on nothing that is not stored in the robots, so it continues after a restart.
func PlanPrefetch(now time.Time, r *v1alpha1.Rollout, revision string, robots []PrefetchRobot) PrefetchPlan {
	p := PrefetchPlan{Orders: map[string]*v1alpha1.RobotPrefetchOrder{}}
	var waiting []*PrefetchRobot
	turns := 0
	for i := range robots {
		robot := &robots[i]
		if robot.Report != nil && robot.Report.State == v1alpha1.PrefetchDone {
			p.Prefetched++
		}
		switch isOwn := robot.isOrdered(r); {
		case isOwn && (!IsPrefetching(r) || !robot.needsTurn(now, &p.RequeueAt)):
			p.Orders[robot.Name] = nil
		case isOwn:
			turns++
		case IsPrefetching(r) && !robot.HasForeignOrder && robot.canBegin(now, &p.RequeueAt):
			waiting = append(waiting, robot)
		}
	}
	slices.SortFunc(waiting, func(a, b *PrefetchRobot) int {
		return cmp.Or(cmp.Compare(Position(r.UID, a.Name), Position(r.UID, b.Name)), cmp.Compare(a.Name, b.Name))
	})
	for _, robot := range waiting[:min(len(waiting), max(0, maxPrefetchRobots(r)-turns))] {
		p.Orders[robot.Name] = newPrefetchOrder(r, revision, robot)
	}
	return p
}

// needsTurn reports whether a robot that has its turn keeps it. If that ends without a report, until is set to the
// earliest of such times.
func (p *PrefetchRobot) needsTurn(now time.Time, until *time.Time) bool {
	if len(p.Groups) == 0 || !p.IsOnline || !p.CanPrefetch {
		return false
	}
	if p.Report == nil || p.Report.Attempt < p.Order.Attempt {
		return p.OrderedAt.IsZero() || isBefore(now, p.OrderedAt.Add(PrefetchReportTime), until)
	}
	return p.Report.State == v1alpha1.PrefetchFetching
}

// isBefore reports whether a time has not come yet. Until is then set to it, unless it is earlier.
func isBefore(now, at time.Time, until *time.Time) bool {
	if !now.Before(at) {
		return false
	}
	if until.IsZero() || at.Before(*until) {
		*until = at
	}
	return true
}

// canBegin reports whether a robot may have its turn. If it must wait after a failure or without a report, until is
// set to the earliest of such times.
func (p *PrefetchRobot) canBegin(now time.Time, until *time.Time) bool {
	if len(p.Groups) == 0 || !p.IsOnline || !p.CanPrefetch {
		return false
	}
	if !p.SilentAt.IsZero() && isBefore(now, p.SilentAt.Add(PrefetchRetryAfter), until) {
		return false
	}
	if p.Report == nil || p.Report.State == v1alpha1.PrefetchFetching {
		return true
	}
	if p.Report.State == v1alpha1.PrefetchDone || p.Report.Attempt >= MaxPrefetchAttempts || p.Report.At == nil {
		return false
	}
	return !isBefore(now, p.Report.At.Add(PrefetchRetryAfter), until)
}

func maxPrefetchRobots(r *v1alpha1.Rollout) int {
	if l := r.Spec.PrefetchLimits; l != nil && l.MaxRobots != nil {
		return int(*l.MaxRobots)
	}
	return v1alpha1.DefaultPrefetchRobots
}

// newPrefetchOrder returns the order of a robot. An order that it is working on keeps its number.
func newPrefetchOrder(r *v1alpha1.Rollout, revision string, robot *PrefetchRobot) *v1alpha1.RobotPrefetchOrder {
	o := &v1alpha1.RobotPrefetchOrder{
		ID: string(r.UID), Namespace: r.Namespace, Rollout: r.Name, Revision: revision, Groups: robot.Groups, Attempt: 1,
	}
	if report := robot.Report; report != nil {
		o.Attempt = max(report.Attempt, 1)
		if report.State == v1alpha1.PrefetchFailed {
			o.Attempt++
		}
	}
	if l := r.Spec.PrefetchLimits; l != nil && l.BytesPerSecond != nil {
		o.BytesPerSecond = *l.BytesPerSecond
	}
	return o
}
