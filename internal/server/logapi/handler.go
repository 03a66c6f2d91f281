package logapi

import (
	"context"
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
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/server/logstore"
)

// Gate authenticates and authorizes requests.
type Gate interface {
	Authenticate(r *http.Request) (*access.User, error)
	IsAllowed(ctx context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error)
}

// Handler serves requests. All exported fields are required.
type Handler struct {
	Gate     Gate
	Tasks    client.Reader
	Store    logstore.Store
	Notifier *Notifier
	Log      logr.Logger

	runs limits.Slots // of requests for runs, by user
}

// Routes returns a handler of all routes.
func (h *Handler) Routes() http.Handler {
	mux := http.NewServeMux()
	h.Register(mux)
	return mux
}

// Register adds the routes to mux. It is called once.
func (h *Handler) Register(mux *http.ServeMux) {
	h.runs.Max, h.runs.MaxPerName = maxRunRequests, maxRunRequestsOfUser
	mux.HandleFunc("GET /v1/namespaces/{namespace}/tasks/{task}/logs", h.handleLogs)
	mux.HandleFunc("GET /v1/namespaces/{namespace}/tasks/{task}/runs", h.handleRuns)
}

func (h *Handler) handleLogs(w http.ResponseWriter, r *http.Request) {
	name := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("task")}
	if _, err := h.authorize(r, name); err != nil {
		h.writeError(w, err)
		return
	}
	q, err := query.Parse(r.URL.Query(), time.Now())
	if err != nil {
		h.writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	s, err := h.openSession(r.Context(), name, q)
	if err != nil {
		h.writeError(w, err)
		return
	}
	s.out = newOutput(w, q)
	if err := s.writeAttempts(r.Context()); err != nil {
		h.Log.V(1).Info("aborted a log request", "task", name.String(), "reason", err.Error())
		// The reader must not take this for the end of the log.
		panic(http.ErrAbortHandler)
	}
}

// authorize returns the user of a request, who may read the log of the task.
func (h *Handler) authorize(r *http.Request, name client.ObjectKey) (*access.User, error) {
	u, err := access.AuthenticateConnection(h.Gate, r)
	if err != nil {
		return nil, err
	}
	allowed, err := h.Gate.IsAllowed(r.Context(), u, authorizationv1.ResourceAttributes{
		Namespace: name.Namespace, Verb: "get", Group: robotv1.GroupVersion.Group, Resource: "tasks", Subresource: "log", Name: name.Name,
	})
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	if !allowed {
		return nil, apierrors.NewForbidden(tasks, name.Name, fmt.Errorf("user %q cannot get tasks/log in namespace %q", u.Name, name.Namespace))
	}
	return u, nil
}

var tasks = robotv1.GroupVersion.WithResource("tasks").GroupResource()

// openSession finds the task and the first attempt of a request.
func (h *Handler) openSession(ctx context.Context, name client.ObjectKey, q query.Query) (*session, error) {
	s := &session{Query: q, handler: h, name: name}
	t, err := s.readTask(ctx)
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
		if s.first, err = s.lastAttempt(ctx, t); err != nil {
			return nil, err
		}
	}
	return s, s.checkAvailable(ctx, t)
}

// checkAvailable returns an error for a log that does not exist and will not.
func (s *session) checkAvailable(ctx context.Context, t *robotv1.Task) error {
	switch {
	case t.Status.Attempt == 0 && !s.Follow:
		return newStatusError(http.StatusConflict, query.ReasonNotStarted, "task %s is %s and has not started", t.Name, lifecycle.TaskState(t.Status.State).OrPending())
	case s.first > t.Status.Attempt && !s.Follow:
		return newStatusError(http.StatusNotFound, query.ReasonNoAttempt, "task %s has had %d attempts", t.Name, t.Status.Attempt)
	case s.first == 0 || !hasEnded(t, s.first):
		return nil // it may still be written
	}
	if _, err := s.handler.Store.Info(ctx, s.logKey(t, s.first)); !errors.Is(err, logstore.ErrNotFound) {
		return err
	}
	return newStatusError(http.StatusGone, query.ReasonGone, "the log of attempt %d of task %s was removed", s.first, t.Name)
}

func newStatusError(code int32, reason metav1.StatusReason, format string, a ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, a...),
	}}
}

// writeError responds with a Status, as the API server does.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	access.WriteError(w, h.Log, err, "read a log", "the log cannot be read")
}
