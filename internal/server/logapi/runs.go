package logapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// Each request for runs reads all records of an attempt, so only so many are served at the same time.
const (
	maxRunRequests       = 32
	maxRunRequestsOfUser = 8
	// retryRunsAfter is when a client that was refused may try again.
	retryRunsAfter = time.Second
)

// handleRuns answers with a page of the runs of an attempt.
func (h *Handler) handleRuns(w http.ResponseWriter, r *http.Request) {
	name := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("task")}
	u, err := h.authorize(r, name)
	if err != nil {
		h.writeError(w, err)
		return
	}
	q, err := runlog.ParseQuery(r.URL.Query())
	if err != nil {
		h.writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	page, err := h.readRunsInSlot(r.Context(), u.Name, name, q)
	if err != nil {
		h.writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(page) // the client is gone
}

// readRunsInSlot is readRuns with a slot of the user, which is free again before a slow client gets the page.
func (h *Handler) readRunsInSlot(ctx context.Context, user string, name client.ObjectKey, q runlog.Query) (*runlog.Page, error) {
	if err := h.runs.Take(user); err != nil {
		return nil, newTooManyRuns(err, user)
	}
	defer h.runs.Free(user)
	return h.readRuns(ctx, name, q)
}

// newTooManyRuns returns the answer to a request for which there is no slot.
func newTooManyRuns(err error, user string) error {
	text := fmt.Sprintf("%d requests for runs are served at the same time; try again", maxRunRequests)
	if errors.Is(err, limits.ErrTooManyOfName) {
		text = fmt.Sprintf("%d requests for runs of user %q are served at the same time; try again when one of them has ended", maxRunRequestsOfUser, user)
	}
	return apierrors.NewTooManyRequests(text, int(retryRunsAfter.Seconds()))
}

// readRuns returns the runs of an attempt: those with records, and those of the status after them.
func (h *Handler) readRuns(ctx context.Context, name client.ObjectKey, q runlog.Query) (*runlog.Page, error) {
	s := &session{handler: h, name: name}
	t, err := s.readTask(ctx)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, apierrors.NewNotFound(tasks, name.Name)
	}
	attempt := q.Attempt
	if attempt == 0 {
		attempt = t.Status.Attempt
	}
	switch {
	case attempt == 0:
		return nil, newStatusError(http.StatusConflict, query.ReasonNotStarted, "task %s is %s and has not started", t.Name, lifecycle.TaskState(t.Status.State).OrPending())
	case attempt > t.Status.Attempt:
		return nil, newStatusError(http.StatusNotFound, query.ReasonNoAttempt, "task %s has had %d attempts", t.Name, t.Status.Attempt)
	}
	k := s.logKey(t, attempt)
	k.OfRuns = true
	runs := runlog.NewCollector(q)
	if err := addRecords(ctx, h.Store, k, runs); err != nil {
		return nil, err
	}
	a := t.Status.FindAttempt(attempt)
	if a != nil {
		addStatusRuns(runs, a, isExpected(ctx, h.Store, k))
	}
	page := runs.BuildPage(attempt)
	if a != nil {
		page.RunCount = max(page.RunCount, a.RunCount)
	}
	return &page, nil
}

// addRecords adds all records in the store.
func addRecords(ctx context.Context, store logstore.Store, k logstore.Key, to *runlog.Collector) error {
	buf := make([]byte, 256<<10)
	for offset := int64(0); ; {
		c, err := store.ReadAt(ctx, k, offset, buf)
		if err != nil {
			return err
		}
		if len(c.Data) == 0 {
			return ctx.Err()
		}
		to.AddLines(c.Data)
		offset = c.End()
	}
}

// isExpected reports whether more records may arrive: there are some, without the end.
func isExpected(ctx context.Context, store logstore.Store, k logstore.Key) bool {
	info, err := store.Info(ctx, k)
	return err == nil && !info.Done
}

// addStatusRuns adds the runs of the status. If more records are expected, those between will have some. An
// attempt with one run is that run.
func addStatusRuns(to *runlog.Collector, a *robotv1.TaskAttempt, isExpected bool) {
	if isExpected {
		to.Missing = runlog.NotReceived
	}
	all := a.Runs
	if len(all) == 0 && a.RunCount <= 1 && a.StartedAt != nil {
		all = []robotv1.TaskRun{{Run: 1, StartedAt: a.StartedAt, FinishedAt: a.FinishedAt, ExitCode: a.ExitCode, Signal: a.Signal, Reason: a.Reason}}
	}
	for i := range all {
		r := &all[i]
		run := runlog.Run{Run: r.Run, ExitCode: r.ExitCode, Signal: r.Signal, Reason: r.Reason}
		if r.StartedAt != nil {
			run.StartedAt = &r.StartedAt.Time
		}
		if r.FinishedAt != nil {
			run.FinishedAt = &r.FinishedAt.Time
		}
		to.AddRun(run)
	}
}
