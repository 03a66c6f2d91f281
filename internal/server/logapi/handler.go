package logapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/access"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/logquery"
	"k8s4r.io/k8s4r/internal/logstore"
)

// Gate says who calls and what they may do.
type Gate interface {
	User(r *http.Request) (*access.User, error)
	Allowed(ctx context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error)
}

// Handler answers requests. It needs all fields.
type Handler struct {
	Gate  Gate
	Tasks client.Reader
	Store logstore.Store
	Wakes *Wakes
	Log   logr.Logger
}

// Routes returns the addresses that are served.
func (h *Handler) Routes() http.Handler {
	mux := http.NewServeMux()
	h.Register(mux)
	return mux
}

// Register adds the addresses that are served.
func (h *Handler) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/namespaces/{namespace}/tasks/{task}/logs", h.logs)
}

func (h *Handler) logs(w http.ResponseWriter, r *http.Request) {
	name := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("task")}
	if err := h.allow(r, name); err != nil {
		h.refuse(w, err)
		return
	}
	q, err := logquery.Parse(r.URL.Query(), time.Now())
	if err != nil {
		h.refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	s, err := h.session(r.Context(), name, q)
	if err != nil {
		h.refuse(w, err)
		return
	}
	s.out = newOutput(w, q)
	if err := s.run(r.Context()); err != nil {
		h.Log.V(1).Info("a reader of a log was cut off", "task", name.String(), "reason", err.Error())
		// The reader must not take this for the end of the log.
		panic(http.ErrAbortHandler)
	}
}

// allow checks who reads.
func (h *Handler) allow(r *http.Request, name client.ObjectKey) error {
	u, err := h.Gate.User(r)
	if err != nil {
		return access.Refusal(err)
	}
	allowed, err := h.Gate.Allowed(r.Context(), u, authorizationv1.ResourceAttributes{
		Namespace: name.Namespace, Verb: "get", Group: robotv1.GroupVersion.Group, Resource: "tasks", Subresource: "log", Name: name.Name,
	})
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	if !allowed {
		return apierrors.NewForbidden(tasks, name.Name, fmt.Errorf("user %q cannot get tasks/log in namespace %q", u.Name, name.Namespace))
	}
	return nil
}

var tasks = robotv1.GroupVersion.WithResource("tasks").GroupResource()

// session finds out what is to be read.
func (h *Handler) session(ctx context.Context, name client.ObjectKey, q logquery.Query) (*session, error) {
	s := &session{Query: q, h: h, name: name}
	t, err := s.task(ctx)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, apierrors.NewNotFound(tasks, name.Name)
	}
	s.uid, s.first = t.UID, q.Attempt
	if q.From > 0 {
		s.first = q.From
	}
	if s.first == 0 {
		s.first = t.Status.Attempt
	}
	return s, s.check(ctx, t)
}

// check refuses what is not there, and will not be.
func (s *session) check(ctx context.Context, t *robotv1.Task) error {
	switch {
	case t.Status.Attempt == 0 && !s.Follow:
		return refusal(http.StatusConflict, logquery.ReasonNotStarted, "task %s is %s and has not started", t.Name, lifecycle.TaskState(t.Status.State).Normal())
	case s.first > t.Status.Attempt && !s.Follow:
		return refusal(http.StatusNotFound, logquery.ReasonNoAttempt, "task %s has had %d attempts", t.Name, t.Status.Attempt)
	case s.first == 0 || !finished(t, s.first):
		return nil // it is on its way
	}
	if _, err := s.h.Store.Info(ctx, s.key(t, s.first)); !errors.Is(err, logstore.ErrNotFound) {
		return err
	}
	return refusal(http.StatusGone, logquery.ReasonGone, "the log of attempt %d of task %s is not kept any more", s.first, t.Name)
}

func refusal(code int32, reason metav1.StatusReason, format string, a ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, a...),
	}}
}

// refuse answers with a Status, as the API server does.
func (h *Handler) refuse(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		h.Log.Error(err, "read a log")
		known = apierrors.NewInternalError(errors.New("the log cannot be read"))
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // who is gone needs no answer
}
