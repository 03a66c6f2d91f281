package console

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/events/row"
	"k8s4r.io/k8s4r/internal/why"
)

type whyIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
}

func (s *Server) registerWhy(api huma.API) {
	get(s, api, "/tasks/{namespace}/{name}/why", "get-task-why", "Why a task waits, or what became of it; of live tasks", s.whyTask)
	get(s, api, "/jobs/{namespace}/{name}/why", "get-job-why", "What the tasks of a job wait for; of live jobs", s.whyJob)
}

func (s *Server) whyTask(ctx context.Context, in *whyIn) (*why.Explanation, error) {
	t, err := live[*v1alpha1.Task](ctx, s, row.Tasks, in)
	if err != nil {
		return nil, err
	}
	return why.Task(ctx, known{s}, t, s.now())
}

func (s *Server) whyJob(ctx context.Context, in *whyIn) (*why.Explanation, error) {
	j, err := live[*v1alpha1.Job](ctx, s, row.Jobs, in)
	if err != nil {
		return nil, err
	}
	parts, err := s.partsOf(ctx, j)
	if err != nil {
		return nil, err
	}
	return why.Job(j, parts, s.now()), nil
}

// live is an object that the caller may get.
func live[T client.Object](ctx context.Context, s *Server, k row.Kind, in *whyIn) (T, error) {
	var none T
	if err := s.require(ctx, "get", k, in.Namespace, in.Name); err != nil {
		return none, err
	}
	o, ok := find[T](s, k, in.Namespace, in.Name)
	if !ok {
		return none, apierrors.NewNotFound(kinds[k].version.WithResource(kinds[k].resource).GroupResource(), in.Name)
	}
	return o, nil
}

// find is an object, whoever asks.
func find[T client.Object](s *Server, k row.Kind, namespace, name string) (o T, ok bool) {
	if i := s.world.Get(k, namespace, name); i != nil {
		o, ok = i.Object.(T)
	}
	return o, ok
}

// partsOf a job. Nil: the caller may not list its tasks.
func (s *Server) partsOf(ctx context.Context, j *v1alpha1.Job) (*why.Parts, error) {
	ok, err := s.may(ctx, "list", row.Tasks, j.Namespace, "")
	if err != nil || !ok {
		return nil, err
	}
	out := &why.Parts{Tasks: objects[*v1alpha1.Task](s, row.Tasks, j.Namespace, func(t *v1alpha1.Task) bool { return t.Spec.JobName == j.Name })}
	if ok, err = s.may(ctx, "list", row.TaskGroups, j.Namespace, ""); ok {
		out.Groups = objects[*v1alpha1.TaskGroup](s, row.TaskGroups, j.Namespace, func(g *v1alpha1.TaskGroup) bool { return g.Spec.JobName == j.Name })
	}
	return out, err
}

// objects of a kind and a namespace of which something holds.
func objects[T client.Object](s *Server, k row.Kind, namespace string, holds func(T) bool) (out []T) {
	for _, i := range s.world.List(k, namespace) {
		if o, ok := i.Object.(T); ok && holds(o) {
			out = append(out, o)
		}
	}
	return out
}

// known is what the console knows, for a caller who may see it.
type known struct{ s *Server }

// Job is hidden from who may not get it.
func (k known) Job(ctx context.Context, namespace, name string) (*v1alpha1.Job, error) {
	return seen[*v1alpha1.Job](ctx, k.s, row.Jobs, namespace, name)
}

// Group is hidden from who may not get it.
func (k known) Group(ctx context.Context, namespace, name string) (*v1alpha1.TaskGroup, error) {
	return seen[*v1alpha1.TaskGroup](ctx, k.s, row.TaskGroups, namespace, name)
}

// Replica is hidden from who may not list tasks.
func (k known) Replica(ctx context.Context, t *v1alpha1.Task) ([]*v1alpha1.Task, error) {
	ok, err := k.s.may(ctx, "list", row.Tasks, t.Namespace, "")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, why.ErrHidden
	}
	index := t.Labels[v1alpha1.LabelTaskIndex]
	return objects[*v1alpha1.Task](k.s, row.Tasks, t.Namespace, func(o *v1alpha1.Task) bool {
		return o.Spec.TaskGroupName == t.Spec.TaskGroupName && o.Labels[v1alpha1.LabelTaskIndex] == index
	}), nil
}

// seen is an object, if the caller may get it. Nil: there is none.
func seen[T client.Object](ctx context.Context, s *Server, k row.Kind, namespace, name string) (T, error) {
	var none T
	ok, err := s.may(ctx, "get", k, namespace, name)
	if err != nil {
		return none, err
	}
	if !ok {
		return none, why.ErrHidden
	}
	o, _ := find[T](s, k, namespace, name)
	return o, nil
}
