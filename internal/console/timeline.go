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
	"k8s4r.io/k8s4r/internal/events/row"
)

// timeline tells when the parts of something ran, and where.
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
	Task    string            `json:"task"`
	Attempt int64             `json:"attempt,omitempty"`
	Step    string            `json:"step,omitempty"`
	Start   metav1.MicroTime  `json:"start"`
	End     *metav1.MicroTime `json:"end,omitempty"`
	Tone    row.Tone          `json:"tone"`
	State   string            `json:"state"`
	Reason  string            `json:"reason,omitempty"`
}

func (s *Server) timeline(ctx context.Context, in *nameIn) (*timeline, error) {
	k := in.Kind
	if k != row.Jobs && k != row.JobFlows && k != row.VCJobs {
		return nil, apierrors.NewBadRequest("kind: jobs, jobflows and vcjobs have a timeline")
	}
	if err := s.require(ctx, "get", k, in.Namespace, in.Name); err != nil {
		return nil, err
	}
	lanes := lanes{}
	if i := s.world.Get(k, in.Namespace, in.Name); i != nil && (in.UID == "" || in.UID == i.Row.UID) {
		s.below(i.Object.GetUID(), lanes)
		return lanes.timeline(), nil
	}
	o, err := s.remembered(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := s.archivedBelow(ctx, o, lanes); err != nil {
		return nil, err
	}
	return lanes.timeline(), nil
}

// lanes by name.
type lanes map[string][]bar

func (l lanes) add(name string, b bar) {
	if name != "" && !b.Start.IsZero() {
		l[name] = append(l[name], b)
	}
}

// timeline puts them in the order in which they were first used.
func (l lanes) timeline() *timeline {
	out := &timeline{Lanes: []lane{}}
	var from, to time.Time
	for name, bars := range l {
		slices.SortFunc(bars, func(a, b bar) int { return cmp.Or(a.Start.Compare(b.Start.Time), cmp.Compare(a.Task, b.Task)) })
		for _, b := range bars {
			if from.IsZero() || b.Start.Time.Before(from) {
				from = b.Start.Time
			}
			if end := moment(b.End); end.After(to) {
				to = end
			}
		}
		out.Lanes = append(out.Lanes, lane{name, bars})
	}
	slices.SortFunc(out.Lanes, func(a, b lane) int {
		return cmp.Or(a.Bars[0].Start.Compare(b.Bars[0].Start.Time), cmp.Compare(a.Name, b.Name))
	})
	out.From, out.To = stamp(from), stamp(to)
	return out
}

// below adds what ran of all that an object controls.
func (s *Server) below(uid types.UID, l lanes) {
	for _, c := range s.world.Owned(uid) {
		switch o := c.Object.(type) {
		case *v1alpha1.Task:
			r := s.whole(c.Row)
			for _, a := range s.attempts(o) {
				a.Step = r.Step
				l.addAttempt(a)
			}
		default:
			if c.Row.Kind == row.Pods && c.Row.Started != nil {
				r := s.whole(c.Row)
				l.add(c.Row.Name, bar{Task: c.Row.Name, Step: r.Step, Start: *r.Started, End: r.Finished, Tone: r.Tone, State: r.State, Reason: r.Reason})
			}
			s.below(c.Object.GetUID(), l)
		}
	}
}

func (l lanes) addAttempt(a attempt) {
	if a.Started != nil {
		l.add(a.Robot, bar{Task: a.Task, Attempt: a.Number, Step: a.Step, Start: *a.Started, End: a.Finished, Tone: a.Tone, State: a.State, Reason: a.Reason})
	}
}

// maxArchivedTasks bounds what a timeline of the past is drawn from.
const maxArchivedTasks = 2000

// archivedBelow adds what the archive has of an object's tasks. Pods are not archived: the
// job of Pods stands for them.
func (s *Server) archivedBelow(ctx context.Context, o *archive.Object, l lanes) error {
	f := archive.Filter{Namespaces: []string{o.Namespace}, Owner: o.UID, Limit: archive.MaxLimit}
	for seen := 0; seen < maxArchivedTasks; {
		p, err := s.archive.List(ctx, f)
		if err != nil {
			return err
		}
		for i := range p.Items {
			if err := s.archivedPart(ctx, &p.Items[i], l); err != nil {
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

func (s *Server) archivedPart(ctx context.Context, o *archive.Object, l lanes) error {
	if o.Kind == archive.VCJob {
		if r := archivedRow(o); r.Started != nil {
			l.add(o.Name, bar{Task: o.Name, Step: o.Step, Start: *r.Started, End: r.Finished, Tone: r.Tone, State: r.State})
		}
		return nil
	}
	if o.Kind != archive.Task {
		return s.archivedBelow(ctx, o, l)
	}
	whole, err := s.archive.Get(ctx, []string{o.Namespace}, o.UID)
	if err != nil {
		return err
	}
	for i := range whole.Attempts {
		l.addAttempt(archivedAttempt(&whole.Attempts[i]))
	}
	return nil
}
