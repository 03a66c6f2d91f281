package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/platform/logclient"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
)

type eventsIn struct {
	Since     string   `query:"since" doc:"ID of the last event, or the resourceVersion of a list. If empty, the stream starts now. If the console was restarted since, or the ID is too old, the first event is resync"`
	LastEvent string   `header:"Last-Event-ID" doc:"Same as since, which it overrides. Clients send it when they reconnect"`
	Namespace string   `query:"namespace"`
	Kind      row.Kind `query:"kind"`
	Name      string   `query:"name"`
	Job       string   `query:"job" doc:"The job with this name, and its groups and tasks"`
	Flow      string   `query:"flow" doc:"The flow with this name, and its jobs, groups and tasks"`
}

type taskLogIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Attempt   int32  `query:"attempt" minimum:"0" doc:"If 0, the last attempt"`
	Tail      int    `query:"tail" default:"-1" doc:"Start with this number of lines before the end. If -1, start with the first line"`
	Follow    bool   `query:"follow" doc:"Continue until the task has ended"`
	Index     int32  `query:"index" default:"-1" maximum:"999999" doc:"Of the log of a range of an array, only what this index wrote"`
}

type podLogIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
	Container string `query:"container" doc:"May be empty if the Pod has one container"`
	Tail      int64  `query:"tail" default:"-1"`
	Follow    bool   `query:"follow"`
	Previous  bool   `query:"previous"`
}

func (s *Server) registerStreams(api huma.API) {
	addStream(s, api, "/events", "events", "Changes of objects, as server-sent events", "text/event-stream", eventStreamSchema(api.OpenAPI().Components.Schemas), s.streamEvents)
	addStream(s, api, "/tasks/{namespace}/{name}/logs", "task-log", "Log of a task", "text/plain", &huma.Schema{Type: huma.TypeString}, s.openTaskLog)
	addStream(s, api, "/pods/{namespace}/{name}/logs", "pod-log", "Log of a container", "text/plain", &huma.Schema{Type: huma.TypeString}, s.openPodLog)
}

// addStream registers an operation whose response has no fixed end. open runs before the response
// starts, so that its error is returned as a Status.
func addStream[I any](s *Server, api huma.API, path, id, summary, content string, schema *huma.Schema, open func(context.Context, *I) (func(w *flusher) error, error)) {
	op := huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: prefix + path, Summary: summary, Errors: []int{400, 401, 403, 404, 409, 410, 421, 502, 503},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{content: {Schema: schema}}}},
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		ctx, end := s.limitToSession(ctx)
		write, err := open(ctx, in)
		if err != nil {
			end()
			return nil, err
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer end()
			hc.SetHeader("Content-Type", content+"; charset=utf-8")
			hc.SetHeader("X-Accel-Buffering", "no") // disables buffering in nginx
			_, w := humago.Unwrap(hc)
			hc.SetStatus(http.StatusOK)
			if err := write(&flusher{w, http.NewResponseController(w)}); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				panic(http.ErrAbortHandler) // closes the connection, so that the client does not mistake this for the end
			}
		}}, nil
	})
}

// limitToSession returns a context that ends with the caller's session. The caller must call end.
func (s *Server) limitToSession(ctx context.Context) (_ context.Context, end func()) {
	until := callerFromContext(ctx).until
	if until.IsZero() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, until.Sub(s.now()))
}

// flusher flushes after each write.
type flusher struct {
	io.Writer
	control *http.ResponseController
}

// Write writes p and flushes.
func (f *flusher) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

const (
	// pingEvery is how often an idle stream sends a comment, which keeps proxies from closing it.
	pingEvery = 15 * time.Second
	// permissionTTL is how long a stream caches a permission. A client that loses the permission
	// receives no more events after this time plus the time that responses of the API server are
	// cached.
	permissionTTL = 5 * time.Second
)

func (s *Server) streamEvents(ctx context.Context, in *eventsIn) (func(*flusher) error, error) {
	since := in.LastEvent
	if since == "" {
		since = in.Since
	}
	f := watch.Filter{Namespace: in.Namespace, Kind: in.Kind, Name: in.Name, Job: in.Job, Flow: in.Flow}
	sender := &eventSender{s: s, filter: f, reader: s.store.Ring().Since(since), request: requestFromContext(ctx), permissions: map[permissionKey]permission{}}
	return func(w *flusher) error {
		s.metrics.readers.Inc()
		defer s.metrics.readers.Dec()
		return sender.sendEvents(ctx, w)
	}, nil
}

// eventSender sends events to one client.
type eventSender struct {
	s      *Server
	filter watch.Filter
	reader *watch.Reader
	// request is authenticated again from time to time, in case its token expires.
	request     *http.Request
	permissions map[permissionKey]permission
}

// permissionKey identifies a permission to list.
type permissionKey struct {
	kind      row.Kind
	namespace string
}

// permission is a cached permission.
type permission struct {
	ok    bool
	until time.Time
}

func (t *eventSender) sendEvents(ctx context.Context, w *flusher) error {
	first, err := json.Marshal(hello{t.reader.Position()})
	if err != nil {
		return err
	}
	if err := writeEvent(w, t.reader.Position(), "hello", first); err != nil {
		return err
	}
	for {
		e, err := t.nextEvent(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if _, err := t.s.identifyCaller(t.request); err != nil {
				return err // the client reconnects and gets the error
			}
			// The position advances even if no event matches, so that a reconnecting client is
			// still within the ring.
			if _, err := fmt.Fprintf(w, ": ping\nid: %s\n\n", t.reader.Position()); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			if err := t.sendEvent(ctx, w, e); err != nil {
				return err
			}
		}
	}
}

func (t *eventSender) nextEvent(ctx context.Context) (*watch.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	return t.reader.Next(ctx)
}

// sendEvent sends the event if it matches the filter and the client may see it.
func (t *eventSender) sendEvent(ctx context.Context, w *flusher, e *watch.Event) error {
	if !t.filter.Matches(e) {
		return nil
	}
	if e.Type == watch.Resync {
		t.s.metrics.resyncs.Inc()
		return writeEvent(w, e.ID, "resync", e.JSON)
	}
	ok, err := t.canSee(ctx, permissionKey{e.Kind, e.Namespace})
	if err != nil || !ok {
		return err
	}
	t.s.metrics.sent.Inc()
	return writeEvent(w, e.ID, "change", e.JSON)
}

func (t *eventSender) canSee(ctx context.Context, p permissionKey) (bool, error) {
	now := time.Now()
	if known := t.permissions[p]; now.Before(known.until) {
		return known.ok, nil
	}
	if _, err := t.s.identifyCaller(t.request); err != nil {
		return false, err
	}
	ok, err := t.s.isAllowed(ctx, "list", p.kind, p.namespace, "")
	if err != nil {
		return false, err
	}
	t.permissions[p] = permission{ok, now.Add(permissionTTL)}
	return ok, nil
}

func writeEvent(w *flusher, id, event string, data []byte) error {
	if len(data) == 0 {
		data = []byte("{}")
	}
	_, err := fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", id, event, data)
	return err
}

// openTaskLog returns a task's log from k8s4r-server, which authorizes the caller by the caller's own
// token.
func (s *Server) openTaskLog(ctx context.Context, in *taskLogIn) (func(*flusher) error, error) {
	c := callerFromContext(ctx)
	at, err := s.findLogServer(ctx, c, in.Name)
	if err != nil {
		return nil, s.toAPIError(err)
	}
	task, q := s.newLogQuery(in)
	log, err := logclient.OpenLog(ctx, s.callerConfig(c), at, in.Namespace, task, q)
	if err != nil {
		return nil, s.toAPIError(toLogServerError(err))
	}
	return pipeBody(log), nil
}

// findLogServer returns the address of the log API, for a caller who can use it.
func (s *Server) findLogServer(ctx context.Context, c *caller, task string) (serveraddr.Address, error) {
	if c.token == "" {
		return serveraddr.Address{}, apierrors.NewForbidden(kinds[row.Tasks].version.WithResource("tasks").GroupResource(), task,
			errors.New("reading logs requires the caller's own token, because a client certificate cannot be forwarded: sign in with a token"))
	}
	at, err := s.findLogs(ctx)
	if err != nil {
		return at, apierrors.NewServiceUnavailable("the address of the log API is unknown: check that k8s4r-server is running, and not with --api-bind-address=0")
	}
	return at, nil
}

// newLogQuery returns the task whose log the caller reads, and what of it. What an index of an array
// wrote in its range is in the log of the range.
func (s *Server) newLogQuery(in *taskLogIn) (task string, q query.Query) {
	q = query.Query{Attempt: in.Attempt, Tail: in.Tail, Follow: in.Follow}
	if in.Index >= 0 {
		q.Index = &in.Index
	}
	task, index := s.findLogOf(in.Namespace, in.Name, in.Attempt)
	if index != nil {
		q.Index, q.Attempt = index, 0
	}
	return task, q
}

// trimURL returns the text of a network error without the URL of the request.
func trimURL(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	return err.Error()
}

func pipeBody(from io.ReadCloser) func(*flusher) error {
	return func(w *flusher) error {
		defer func() { _ = from.Close() }()
		_, err := io.Copy(w, from)
		return err
	}
}

// openPodLog returns a container's log from the API server with the permissions of the caller.
func (s *Server) openPodLog(ctx context.Context, in *podLogIn) (func(*flusher) error, error) {
	c, err := kubernetes.NewForConfig(s.callerConfig(callerFromContext(ctx)))
	if err != nil {
		return nil, s.toAPIError(err)
	}
	o := &corev1.PodLogOptions{Container: in.Container, Follow: in.Follow, Previous: in.Previous}
	if in.Tail >= 0 {
		o.TailLines = &in.Tail
	}
	from, err := c.CoreV1().Pods(in.Namespace).GetLogs(in.Name, o).Stream(ctx)
	if err != nil {
		return nil, s.toAPIError(err)
	}
	return pipeBody(from), nil
}
