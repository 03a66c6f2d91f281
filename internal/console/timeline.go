package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
)

// timeline shows when and where the parts of an object ran.
type timeline struct {
	From  *metav1.MicroTime `json:"from,omitempty"`
	To    *metav1.MicroTime `json:"to,omitempty"`
	Lanes []lane            `json:"lanes"`
}

// lane is a robot or a Pod.
type lane struct {
	Name string `json:"name"`
	Bars []bar  `json:"bars"`
}

// bar is one run.
type bar struct {
	Task     string            `json:"task"`
	Attempt  int64             `json:"attempt,omitempty"`
	Step     string            `json:"step,omitempty"`
	Start    metav1.MicroTime  `json:"start"`
	End      *metav1.MicroTime `json:"end,omitempty"`
	Severity row.Severity      `json:"severity"`
	State    string            `json:"state"`
	Reason   string            `json:"reason,omitempty"`
}

func (s *Server) getTimeline(ctx context.Context, in *nameIn) (*timeline, error) {
	k := in.Kind
	if k != row.Jobs && k != row.JobFlows && k != row.VCJobs {
		return nil, apierrors.NewBadRequest("kind: only jobs, jobflows and vcjobs have a timeline")
	}
	if err := s.requireAccess(ctx, "get", k, in.Namespace, in.Name); err != nil {
		return nil, err
	}
	lanes := lanes{}
	if i := s.store.Get(k, in.Namespace, in.Name); i != nil && (in.UID == "" || in.UID == i.Row.UID) {
		s.addOwned(i.Object.GetUID(), lanes)
		return lanes.toTimeline(), nil
	}
	o, err := s.readArchived(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := s.addArchivedChildren(ctx, o, lanes); err != nil {
		return nil, err
	}
	return lanes.toTimeline(), nil
}

// lanes maps names of lanes to their bars.
type lanes map[string][]bar

func (l lanes) addBar(name string, b bar) {
	if name != "" && !b.Start.IsZero() {
		l[name] = append(l[name], b)
	}
}

// toTimeline sorts the lanes by the start of their first bar.
func (l lanes) toTimeline() *timeline {
	out := &timeline{Lanes: []lane{}}
	var from, to time.Time
	for name, bars := range l {
		slices.SortFunc(bars, func(a, b bar) int { return cmp.Or(a.Start.Compare(b.Start.Time), cmp.Compare(a.Task, b.Task)) })
		for _, b := range bars {
			if from.IsZero() || b.Start.Time.Before(from) {
				from = b.Start.Time
			}
			if end := fromMicroTime(b.End); end.After(to) {
				to = end
			}
		}
		out.Lanes = append(out.Lanes, lane{name, bars})
	}
	slices.SortFunc(out.Lanes, func(a, b lane) int {
		return cmp.Or(a.Bars[0].Start.Compare(b.Bars[0].Start.Time), cmp.Compare(a.Name, b.Name))
	})
	out.From, out.To = toMicroTime(from), toMicroTime(to)
	return out
}

// addOwned adds the runs of all objects that an object controls.
func (s *Server) addOwned(uid types.UID, l lanes) {
	for _, c := range s.store.Owned(uid) {
		switch o := c.Object.(type) {
		case *v1alpha1.Task:
			r := s.completeRow(c.Row)
			for _, a := range s.listAttempts(o) {
				a.Step = r.Step
				l.addAttempt(a)
			}
		default:
			if c.Row.Kind == row.Pods && c.Row.Started != nil {
				r := s.completeRow(c.Row)
				l.addBar(c.Row.Name, bar{Task: c.Row.Name, Step: r.Step, Start: *r.Started, End: r.Finished, Severity: r.Severity, State: r.State, Reason: r.Reason})
			}
			s.addOwned(c.Object.GetUID(), l)
		}
	}
}

func (l lanes) addAttempt(a attempt) {
	if a.Started != nil {
		l.addBar(a.Robot, bar{Task: a.Task, Attempt: a.Number, Step: a.Step, Start: *a.Started, End: a.Finished, Severity: a.Severity, State: a.State, Reason: a.Reason})
	}
}

// maxArchivedTasks bounds how many archived tasks a timeline includes.
const maxArchivedTasks = 2000

// addArchivedChildren adds the archived tasks of an object. Pods are not archived; their vcjob is shown
// instead.
func (s *Server) addArchivedChildren(ctx context.Context, o *archive.Object, l lanes) error {
	f := archive.Filter{Namespace: o.Namespace, Owner: o.UID, Limit: archive.MaxLimit}
	for seen := 0; seen < maxArchivedTasks; {
		p, err := s.archive.List(ctx, f)
		if err != nil {
			return err
		}
		for i := range p.Items {
			if err := s.addArchivedPart(ctx, &p.Items[i], l); err != nil {
				return err
			}
		}
		seen += len(p.Items)
		if f.Cursor = p.Next; p.Next == "" {
			return nil
		}
	}
	return nil
}

func (s *Server) addArchivedPart(ctx context.Context, o *archive.Object, l lanes) error {
	if o.Kind == archive.VCJob {
		if r := newArchivedRow(o); r.Started != nil {
			l.addBar(o.Name, bar{Task: o.Name, Step: o.Step, Start: *r.Started, End: r.Finished, Severity: r.Severity, State: r.State})
		}
		return nil
	}
	if o.Kind != archive.Task {
		return s.addArchivedChildren(ctx, o, l)
	}
	whole, err := s.archive.GetByUID(ctx, nil, o.UID)
	if err != nil {
		return err
	}
	for i := range whole.Attempts {
		l.addAttempt(newArchivedAttempt(&whole.Attempts[i]))
	}
	return nil
}
