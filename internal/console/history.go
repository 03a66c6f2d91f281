package console

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
)

// spanIn is the time span and filter of a query to the archive.
type spanIn struct {
	Namespace string `query:"namespace" doc:"If empty, all namespaces that the caller can see"`
	Template  string `query:"template"`
	Since     string `query:"since" doc:"RFC 3339"`
	Until     string `query:"until" doc:"RFC 3339"`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type robotHistoryIn struct {
	Robot     string `path:"robot"`
	Namespace string `query:"namespace" doc:"Namespace of the tasks. If empty, all that the caller can see"`
	Since     string `query:"since" doc:"RFC 3339"`
	Until     string `query:"until" doc:"RFC 3339"`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Continue  string `query:"continue"`
}

type attemptPage struct {
	Items    []attempt `json:"items"`
	Continue string    `json:"continue,omitempty"`
}

type stepsIn struct {
	Kind string `query:"kind" enum:"tasks,jobs,vcjobs" default:"tasks"`
	spanIn
}

// sample describes the runs from which statistics were computed.
type sample struct {
	Runs  int               `json:"runs" doc:"Number of runs that were counted"`
	Since *metav1.MicroTime `json:"since,omitempty" doc:"End of the first counted run, if there were more runs in the time span than were counted"`
}

func newSample(s archive.Sample) sample { return sample{s.Runs, toMicroTime(s.Since)} }

type failuresOut struct {
	Items []failures `json:"items"`
	Of    sample     `json:"of"`
}

// failures counts the failed attempts of a step.
type failures struct {
	Template string            `json:"template"`
	Step     string            `json:"step"`
	Attempts int64             `json:"attempts"`
	Failed   int64             `json:"failed"`
	Last     *metav1.MicroTime `json:"last,omitempty"`
}

type stepsOut struct {
	Items []stepTimes `json:"items"`
	Of    sample      `json:"of"`
}

// listStepTimes is the distribution of a step's run times.
type stepTimes struct {
	Template   string  `json:"template"`
	Step       string  `json:"step"`
	Count      int64   `json:"count"`
	P50Seconds float64 `json:"p50Seconds"`
	P95Seconds float64 `json:"p95Seconds"`
	MaxSeconds float64 `json:"maxSeconds"`
}

type transitionsIn struct {
	UID string `path:"uid"`
}

type transitionsOut struct {
	Items []transition `json:"items"`
}

type transition struct {
	At     metav1.MicroTime `json:"at"`
	From   string           `json:"from"`
	To     string           `json:"to"`
	Reason string           `json:"reason,omitempty"`
}

func (s *Server) registerHistory(api huma.API) {
	addRead(s, api, "/history/objects", "history", "Everything that ran, live and archived, newest first", s.listHistory)
	addRead(s, api, "/history/robots/{robot}", "robot-history", "Attempts on a robot", s.getRobotHistory)
	addRead(s, api, "/history/failures", "most-failing", "Jobs or tasks that fail most often", s.listFailures)
	addRead(s, api, "/history/steps", "step-times", "Durations of steps", s.listStepTimes)
	addRead(s, api, "/history/transitions/{uid}", "transitions", "State transitions of an object", s.listTransitions)
}

func (s *Server) getRobotHistory(ctx context.Context, in *robotHistoryIn) (*attemptPage, error) {
	sees, err := s.archiveScope(ctx, row.Tasks, in.Namespace)
	if err != nil {
		return nil, err
	}
	h := archive.RobotHistory{Namespaces: sees, Namespace: in.Namespace, Robot: in.Robot, Limit: in.Limit, Cursor: in.Continue}
	if h.Since, err = parseTime("since", in.Since); err != nil {
		return nil, err
	}
	if h.Until, err = parseTime("until", in.Until); err != nil {
		return nil, err
	}
	p, err := s.archive.ListRobotAttempts(ctx, h)
	if err != nil {
		return nil, toCursorError(err)
	}
	out := &attemptPage{Items: []attempt{}, Continue: p.Next}
	for i := range p.Items {
		out.Items = append(out.Items, newArchivedAttempt(&p.Items[i]))
	}
	return out, nil
}

// archiveScope returns the caller's scope in the archive, or errNoArchive.
func (s *Server) archiveScope(ctx context.Context, k row.Kind, namespace string) ([]archive.Namespace, error) {
	if s.archive == nil {
		return nil, errNoArchive
	}
	sees, err := s.findScope(ctx, k, namespace)
	if err != nil {
		return nil, err
	}
	return s.findPastScope(ctx, "list", k, sees)
}

func (in *spanIn) toArchiveSpan(sees []archive.Namespace) (p archive.Span, err error) {
	p = archive.Span{Namespaces: sees, Namespace: in.Namespace, Template: in.Template, Limit: in.Limit}
	if p.Since, err = parseTime("since", in.Since); err != nil {
		return p, err
	}
	p.Until, err = parseTime("until", in.Until)
	return p, err
}

func (s *Server) listFailures(ctx context.Context, in *spanIn) (*failuresOut, error) {
	sees, err := s.archiveScope(ctx, row.Tasks, in.Namespace)
	if err != nil {
		return nil, err
	}
	p, err := in.toArchiveSpan(sees)
	if err != nil {
		return nil, err
	}
	all, of, err := s.archive.MostFailing(ctx, p)
	out := &failuresOut{Items: []failures{}, Of: newSample(of)}
	for _, f := range all {
		out.Items = append(out.Items, failures{f.Template, f.Step, f.Attempts, f.Failed, toMicroTime(f.Last)})
	}
	return out, err
}

func (s *Server) listStepTimes(ctx context.Context, in *stepsIn) (*stepsOut, error) {
	k := row.Kind(in.Kind)
	sees, err := s.archiveScope(ctx, k, in.Namespace)
	if err != nil {
		return nil, err
	}
	p, err := in.toArchiveSpan(sees)
	if err != nil {
		return nil, err
	}
	all, of, err := s.archive.StepTimes(ctx, kinds[k].archived, p)
	out := &stepsOut{Items: []stepTimes{}, Of: newSample(of)}
	for _, t := range all {
		out.Items = append(out.Items, stepTimes{t.Template, t.Step, t.Count, t.P50.Seconds(), t.P95.Seconds(), t.Max.Seconds()})
	}
	return out, err
}

func (s *Server) listTransitions(ctx context.Context, in *transitionsIn) (*transitionsOut, error) {
	if s.archive == nil {
		return nil, errNoArchive
	}
	o, err := s.archive.GetByUID(ctx, nil, in.UID)
	if err == nil {
		// Check access before the response differs: even the existence of a UID is confidential.
		err = s.requirePastAccess(ctx, &o)
	}
	if err != nil {
		s.log.V(1).Info("Rejected a request for transitions", "uid", in.UID, "reason", err.Error())
		return nil, newStatus(http.StatusNotFound, "uid: no object that the caller may get has the UID "+in.UID)
	}
	all, err := s.archive.ListTransitions(ctx, in.UID)
	out := &transitionsOut{Items: []transition{}}
	for _, t := range all {
		out.Items = append(out.Items, transition{metav1.NewMicroTime(t.At), t.From, t.To, t.Reason})
	}
	return out, err
}

// requirePastAccess returns an error unless the caller may get the archived object.
func (s *Server) requirePastAccess(ctx context.Context, o *archive.Object) error {
	k := rowKind(o.Kind)
	if err := s.requireAccess(ctx, "get", k, o.Namespace, o.Name); err != nil {
		return err
	}
	sees, err := s.findPastScope(ctx, "get", k, scope{names: []string{o.Namespace}})
	if err == nil && !canSeePast(sees, o) {
		err = fmt.Errorf("%s/%s is of an earlier namespace of that name", o.Namespace, o.Name)
	}
	return err
}
