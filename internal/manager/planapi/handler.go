// Package planapi serves POST /v1/plan: what would follow if an object was applied. A caller needs the right to
// apply the object, and the plan names only the robots and tasks that the caller may list.
package planapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/taskgroup"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/platform/access"
	"k8s4r.io/k8s4r/internal/platform/limits"
	"k8s4r.io/k8s4r/internal/protocol/plan"
	"k8s4r.io/k8s4r/internal/scheduler"
)

// Gate authenticates and authorizes requests.
type Gate interface {
	Authenticate(r *http.Request) (*access.User, error)
	IsAllowed(ctx context.Context, u *access.User, do authorizationv1.ResourceAttributes) (bool, error)
}

// Placer previews what the scheduler decides.
type Placer interface {
	PreviewPlacement(ctx context.Context, now time.Time, j *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview
	HasSynced() bool
	PreviewRobots(namespace string) map[string][]string
}

// The bounds of the work of the API.
const (
	// maxConcurrent is how many plans are computed at the same time. Further requests are refused for now.
	maxConcurrent = 2
	// maxPerUser is how many of them are of one user.
	maxPerUser = 1
	// requestInterval is the least time between two plans of one user.
	requestInterval = 200 * time.Millisecond
	// maxUsers bounds the users whose last request is remembered.
	maxUsers = 4096
	// timeout bounds the time of one request.
	timeout = 20 * time.Second
	// computeTime is after which time the rest of a plan is only counted, or not placed.
	computeTime = 8 * time.Second
	// maxTasks is how many existing tasks of a Job a plan covers.
	maxTasks = 50_000
	// retrySeconds is when a request that was refused for load may be repeated.
	retrySeconds = 1
)

// Handler serves requests. All fields are required.
type Handler struct {
	Gate   Gate
	Placer Placer
	// Cache reads the objects of the manager's cache, and Live reads past it.
	Cache, Live client.Reader
	Config      taskgroup.Config
	Now         func() time.Time
	Log         logr.Logger

	busy  limits.Slots
	users limits.Interval
}

// Register adds the route to mux. It is called once.
func (h *Handler) Register(mux *http.ServeMux) {
	h.busy.Max, h.busy.MaxPerName = maxConcurrent, maxPerUser
	h.users.Period, h.users.MaxNames = requestInterval, maxUsers
	mux.HandleFunc("POST "+plan.Path, h.handlePlan)
}

func (h *Handler) handlePlan(w http.ResponseWriter, r *http.Request) {
	p, err := h.answer(w, r)
	if err != nil {
		h.writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}

// answer checks the limits, and returns the plan for a request.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) (*plan.Plan, error) {
	u, err := access.AuthenticateConnection(h.Gate, r)
	if err != nil {
		return nil, err
	}
	if !h.Placer.HasSynced() {
		return nil, apierrors.NewTooManyRequests("the manager has just started and has not listed all objects yet", retrySeconds)
	}
	if !h.users.Allow(u.Name, h.Now()) {
		return nil, apierrors.NewTooManyRequests("a user may request five plans a second", retrySeconds)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // not supported by the recorders of tests
	next, err := readRequest(http.MaxBytesReader(w, r.Body, plan.MaxRequestBytes))
	if err != nil {
		return nil, err
	}
	q := &query{Handler: h, user: u, key: next.key}
	was, err := q.authorize(ctx)
	if err != nil {
		return nil, err
	}
	// A slot is taken only now, so that slow clients and users without rights keep none from others.
	if err := h.takeSlot(u.Name); err != nil {
		return nil, err
	}
	defer h.busy.Free(u.Name)
	if q.next, err = next.decodeJob(); err != nil {
		return nil, err
	}
	return q.planJob(ctx, was)
}

// takeSlot takes one of the slots for the computation of plans. The caller frees it.
func (h *Handler) takeSlot(user string) error {
	err := h.busy.Take(user)
	switch {
	case errors.Is(err, limits.ErrTooManyOfName):
		return apierrors.NewTooManyRequests("the manager computes another plan of this user", retrySeconds)
	case err != nil:
		return apierrors.NewTooManyRequests("the manager computes other plans", retrySeconds)
	}
	return nil
}

// request is an object whose content has not been checked.
type request struct {
	key     types.NamespacedName
	content map[string]any
}

// readRequest reads which Job a request is about. It decodes it into its type only later: a small text can be a very
// large Job, because a struct takes more room than the text {}.
func readRequest(body io.Reader) (*request, error) {
	data, err := io.ReadAll(body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object may have at most %d bytes", tooLarge.Limit))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	var content map[string]any
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, apierrors.NewBadRequest("the request must be an object as JSON: " + err.Error())
	}
	o := unstructured.Unstructured{Object: content}
	if o.GetKind() != "Job" || o.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("kind %.100s of %.100s: only a Job of %s can be planned", o.GetKind(), o.GetAPIVersion(), v1alpha1.GroupVersion))
	}
	if o.GetName() == "" || o.GetNamespace() == "" {
		return nil, apierrors.NewBadRequest("metadata.name and metadata.namespace: must be set")
	}
	if len(o.GetName()) > maxNames || len(o.GetNamespace()) > maxNames {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.name, metadata.namespace: must have at most %d characters", maxNames))
	}
	return &request{types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, content}, nil
}

// maxNames is how many characters names and namespaces have, by the rules of Kubernetes.
const maxNames = 253

// decodeJob returns the Job, which has the bounds of its schema: a client can send one that the API server has not
// seen.
func (r *request) decodeJob() (*v1alpha1.Job, error) {
	schema, err := jobSchema()
	if err != nil {
		return nil, err
	}
	if err := checkBounds("", schema, r.content); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var j v1alpha1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.content, &j); err != nil {
		return nil, apierrors.NewBadRequest("the Job is not valid: " + err.Error())
	}
	for i := range j.Spec.TaskGroups {
		if err := array.Check(fmt.Sprintf("spec.taskGroups[%d].", i), j.Spec.Type, &j.Spec.TaskGroups[i].TaskGroupTemplate); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return &j, nil
}

// writeError responds with a Status, as the API server does.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	access.WriteError(w, h.Log, err, "compute a plan", "the plan cannot be computed; the log of k8s4r-manager has the reason")
}
