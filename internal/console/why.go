package console

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/core/explain"
	"k8s4r.io/k8s4r/internal/platform/restore"
)

type whyIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
}

func (s *Server) registerWhy(api huma.API) {
	addRead(s, api, "/tasks/{namespace}/{name}/why", "get-task-why", "Why a live task waits, or how it ended", s.explainTask)
	addRead(s, api, "/jobs/{namespace}/{name}/why", "get-job-why", "Why the tasks of a live job wait", s.explainJob)
}

func (s *Server) explainTask(ctx context.Context, in *whyIn) (*explain.Explanation, error) {
	t, err := readLive[*v1alpha1.Task](ctx, s, row.Tasks, in)
	if v, ok := s.findIndex(in.Namespace, in.Name); ok && (err == nil || apierrors.IsNotFound(err)) {
		return explain.ExplainIndex(ctx, visibleObjects{s}, v, s.now())
	}
	if err != nil {
		return nil, err
	}
	return explain.ExplainTask(ctx, visibleObjects{s}, t, s.now())
}

func (s *Server) explainJob(ctx context.Context, in *whyIn) (*explain.Explanation, error) {
	j, err := readLive[*v1alpha1.Job](ctx, s, row.Jobs, in)
	if err != nil {
		return nil, err
	}
	parts, err := s.findParts(ctx, j)
	if err != nil {
		return nil, err
	}
	return explain.ExplainJob(j, parts, s.now()), nil
}

// readLive returns a live object. The caller must be allowed to get it.
func readLive[T client.Object](ctx context.Context, s *Server, k row.Kind, in *whyIn) (T, error) {
	var none T
	if err := s.requireAccess(ctx, "get", k, in.Namespace, in.Name); err != nil {
		return none, err
	}
	o, ok := findObject[T](s, k, in.Namespace, in.Name)
	if !ok {
		return none, apierrors.NewNotFound(kinds[k].version.WithResource(kinds[k].resource).GroupResource(), in.Name)
	}
	return o, nil
}

// findObject returns a live object without checking permissions.
func findObject[T client.Object](s *Server, k row.Kind, namespace, name string) (o T, ok bool) {
	if i := s.store.Get(k, namespace, name); i != nil {
		o, ok = i.Object.(T)
	}
	return o, ok
}

// findParts returns the tasks and groups of a job. It returns nil if the caller may not list tasks.
func (s *Server) findParts(ctx context.Context, j *v1alpha1.Job) (*explain.Parts, error) {
	ok, err := s.isAllowed(ctx, "list", row.Tasks, j.Namespace, "")
	if err != nil || !ok {
		return nil, err
	}
	out := &explain.Parts{Tasks: findObjects[*v1alpha1.Task](s, row.Tasks, j.Namespace, func(t *v1alpha1.Task) bool { return t.Spec.JobName == j.Name })}
	if out.Hold, err = (visibleObjects{s}).Hold(ctx); err != nil {
		return nil, err
	}
	if ok, err = s.isAllowed(ctx, "list", row.TaskGroups, j.Namespace, ""); ok {
		out.Groups = findObjects[*v1alpha1.TaskGroup](s, row.TaskGroups, j.Namespace, func(g *v1alpha1.TaskGroup) bool { return g.Spec.JobName == j.Name })
	}
	return out, err
}

// findObjects returns the objects of a kind and namespace for which holds returns true.
func findObjects[T client.Object](s *Server, k row.Kind, namespace string, holds func(T) bool) (out []T) {
	for _, i := range s.store.List(k, namespace) {
		if o, ok := i.Object.(T); ok && holds(o) {
			out = append(out, o)
		}
	}
	return out
}

// visibleObjects provides live objects to package explain, restricted to what the caller may see.
type visibleObjects struct{ s *Server }

// Job returns a job, or explain.ErrHidden if the caller may not get it.
func (k visibleObjects) Job(ctx context.Context, namespace, name string) (*v1alpha1.Job, error) {
	return readVisible[*v1alpha1.Job](ctx, k.s, row.Jobs, namespace, name)
}

// Group returns a group, or explain.ErrHidden if the caller may not get it.
func (k visibleObjects) Group(ctx context.Context, namespace, name string) (*v1alpha1.TaskGroup, error) {
	return readVisible[*v1alpha1.TaskGroup](ctx, k.s, row.TaskGroups, namespace, name)
}

// Robot returns a robot, or explain.ErrHidden if the caller may not get it.
func (k visibleObjects) Robot(ctx context.Context, namespace, name string) (*v1alpha1.Robot, error) {
	return readVisible[*v1alpha1.Robot](ctx, k.s, row.Robots, namespace, name)
}

// Replica returns the tasks of the replica, or explain.ErrHidden if the caller may not list
// tasks.
func (k visibleObjects) Replica(ctx context.Context, t *v1alpha1.Task) ([]*v1alpha1.Task, error) {
	ok, err := k.s.isAllowed(ctx, "list", row.Tasks, t.Namespace, "")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, explain.ErrHidden
	}
	index := t.Labels[v1alpha1.LabelTaskIndex]
	return findObjects[*v1alpha1.Task](k.s, row.Tasks, t.Namespace, func(o *v1alpha1.Task) bool {
		return o.Spec.TaskGroupName == t.Spec.TaskGroupName && o.Labels[v1alpha1.LabelTaskIndex] == index
	}), nil
}

// Hold returns the reason for which no task of the cluster is placed.
func (k visibleObjects) Hold(ctx context.Context) (string, error) {
	h, err := restore.FindHold(ctx, k.s.live)
	return h.Reason, err
}

// readVisible returns an object, or explain.ErrHidden if the caller may not get it. It returns
// nil if the object does not exist.
func readVisible[T client.Object](ctx context.Context, s *Server, k row.Kind, namespace, name string) (T, error) {
	var none T
	ok, err := s.isAllowed(ctx, "get", k, namespace, name)
	if err != nil {
		return none, err
	}
	if !ok {
		return none, explain.ErrHidden
	}
	o, _ := findObject[T](s, k, namespace, name)
	return o, nil
}
