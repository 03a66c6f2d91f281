package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/platform/logclient"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
)

type taskRunsIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Attempt   int32  `query:"attempt" minimum:"0" doc:"If 0, the last attempt"`
	Limit     int    `query:"limit" minimum:"1" maximum:"10000" default:"100"`
	Before    int64  `query:"before" minimum:"0" doc:"The runs before this one. If 0, the last ones"`
}

// runPage is a part of the runs of an attempt.
type runPage struct {
	Attempt int32 `json:"attempt"`
	// RunCount is the number of the last run that is known.
	RunCount int64 `json:"runCount"`
	// Items are the oldest first.
	Items []run    `json:"items"`
	Gaps  []runGap `json:"gaps"`
	// Before requests the runs before these. If 0, there are none.
	Before int64 `json:"before,omitempty"`
}

// runGap is a part of the runs that the server did not see as they happened.
type runGap struct {
	Reason string            `json:"reason" enum:"OutOfContact,NotRecorded,NotReceived" doc:"OutOfContact: the robot made the runs without contact. NotRecorded: they have no records. NotReceived: their records have not arrived yet"`
	First  int64             `json:"first"`
	Last   int64             `json:"last"`
	From   *metav1.MicroTime `json:"from,omitempty"`
	To     *metav1.MicroTime `json:"to,omitempty"`
}

func (s *Server) registerRuns(api huma.API) {
	addRead(s, api, "/tasks/{namespace}/{name}/runs", "task-runs", "Runs of an attempt of a task, also those without contact", s.getTaskRuns)
}

// getTaskRuns returns runs of a task from k8s4r-server, which authorizes the caller as for its log.
func (s *Server) getTaskRuns(ctx context.Context, in *taskRunsIn) (*runPage, error) {
	c := callerFromContext(ctx)
	at, err := s.findLogServer(ctx, c, in.Name)
	if err != nil {
		return nil, err
	}
	q := runlog.Query{Attempt: in.Attempt, Limit: in.Limit, Before: in.Before}
	page, err := logclient.ListRuns(ctx, s.callerConfig(c), at, in.Namespace, in.Name, q)
	if err != nil {
		return nil, toLogServerError(err)
	}
	return newRunPage(page), nil
}

// toLogServerError returns the answer about a request that k8s4r-server did not serve.
func toLogServerError(err error) error {
	if away, ok := errors.AsType[*logclient.UnreachableError](err); ok {
		return apierrors.NewServiceUnavailable("cannot read the log from k8s4r-server: " + trimURL(away.Err))
	}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return err
	}
	return newStatus(http.StatusBadGateway, err.Error())
}

func newRunPage(p runlog.Page) *runPage {
	out := &runPage{Attempt: p.Attempt, RunCount: p.RunCount, Items: []run{}, Gaps: []runGap{}, Before: p.Before}
	for _, r := range p.Items {
		out.Items = append(out.Items, run{
			Number: r.Run, Reason: r.Reason, ExitCode: toInt64(r.ExitCode), Signal: int64(r.Signal), Started: optionalMicroTime(r.StartedAt), Finished: optionalMicroTime(r.FinishedAt),
			WithoutContact: r.WithoutContact,
		})
	}
	for _, g := range p.Gaps {
		out.Gaps = append(out.Gaps, runGap{Reason: string(g.Reason), First: g.FirstRun, Last: g.LastRun, From: optionalMicroTime(g.From), To: optionalMicroTime(g.To)})
	}
	return out
}

func optionalMicroTime(t *time.Time) *metav1.MicroTime {
	if t == nil {
		return nil
	}
	return new(metav1.NewMicroTime(*t))
}
