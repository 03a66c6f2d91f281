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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	PreviewPlacement(now time.Time, j *v1alpha1.Job, groups []scheduler.PreviewGroup) scheduler.Preview
	HasSynced() bool
	PreviewRobots(namespace string) map[string][]string
}

// The bounds of the work of the API.
const (
	// maxConcurrent is how many plans are computed at the same time. Further requests are refused for now.
	maxConcurrent = 2
	// requestInterval is the least time between two plans of one user.
	requestInterval = 200 * time.Millisecond
	// maxUsers bounds the users whose last request is remembered.
	maxUsers = 4096
	// timeout bounds the time of one request.
	timeout = 20 * time.Second
	// computeTime is after which time the rest of a plan is only counted.
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

	busy  chan struct{}
	users limits.Interval
}

// Register adds the route to mux. It is called once.
func (h *Handler) Register(mux *http.ServeMux) {
	h.busy = make(chan struct{}, maxConcurrent)
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
	select {
	case h.busy <- struct{}{}:
		defer func() { <-h.busy }()
	default:
		return nil, apierrors.NewTooManyRequests("the manager computes other plans", retrySeconds)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)) // not supported by the recorders of tests
	j, err := readJob(http.MaxBytesReader(w, r.Body, plan.MaxRequestBytes))
	if err != nil {
		return nil, err
	}
	q := &query{Handler: h, user: u, next: j}
	return q.planJob(ctx)
}

// readJob reads the object of a request.
func readJob(body io.Reader) (*v1alpha1.Job, error) {
	data, err := io.ReadAll(body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("an object may have at most %d bytes", tooLarge.Limit))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("read the request: " + err.Error())
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, apierrors.NewBadRequest("the request must be an object as JSON: " + err.Error())
	}
	if kind.Kind != "Job" || kind.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("kind %.100s of %.100s: only a Job of %s can be planned", kind.Kind, kind.APIVersion, v1alpha1.GroupVersion))
	}
	var j v1alpha1.Job
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, apierrors.NewBadRequest("the Job is not valid: " + err.Error())
	}
	if j.Name == "" || j.Namespace == "" {
		return nil, apierrors.NewBadRequest("metadata.name and metadata.namespace: must be set")
	}
	return &j, checkSize(&j)
}

// The bounds of a Job, as its schema has them. A client can send a Job that the API server has not seen.
const (
	maxGroups = 64
	maxNames  = 253
	maxCount  = 1_000_000
)

func checkSize(j *v1alpha1.Job) error {
	if len(j.Name) > maxNames || len(j.Namespace) > maxNames {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.name, metadata.namespace: must have at most %d characters", maxNames))
	}
	if n := len(j.Spec.TaskGroups); n == 0 || n > maxGroups {
		return apierrors.NewBadRequest(fmt.Sprintf("spec.taskGroups: must have 1 to %d items, not %d", maxGroups, n))
	}
	for i := range j.Spec.TaskGroups {
		g := &j.Spec.TaskGroups[i]
		if g.Count != nil && (*g.Count < 0 || *g.Count > maxCount) {
			return apierrors.NewBadRequest(fmt.Sprintf("spec.taskGroups[%d].count: must be from 0 to %d", i, maxCount))
		}
		if len(g.Tasks) == 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("spec.taskGroups[%d].tasks: must have at least 1 item", i))
		}
		if err := array.Check(fmt.Sprintf("spec.taskGroups[%d].", i), j.Spec.Type, &g.TaskGroupTemplate); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	return nil
}

// writeError responds with a Status, as the API server does.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		h.Log.Error(err, "compute a plan")
		known = apierrors.NewInternalError(errors.New("the plan cannot be computed; the log of k8s4r-manager has the reason"))
	}
	access.WriteStatus(w, known)
}
