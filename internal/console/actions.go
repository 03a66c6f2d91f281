package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
)

// target is one object that something is asked of.
type target struct {
	Kind      string `json:"kind" enum:"jobs,tasks,robots,jobflows,cronjobflows,vcjobs,rayclusters,pods"`
	Namespace string `json:"namespace" minLength:"1"`
	Name      string `json:"name" minLength:"1"`
	// UID of the object that is meant. Empty: the one that bears the name.
	UID string `json:"uid,omitempty"`
}

type actionsIn struct {
	Body struct {
		Action   verb     `json:"action"`
		Items    []target `json:"items" minItems:"1" maxItems:"1000"`
		Priority *int32   `json:"priority,omitempty" minimum:"0" maximum:"100"`
		DryRun   bool     `json:"dryRun,omitempty" doc:"Say what would happen, and change nothing"`
	}
}

// result of an action on one object.
type result struct {
	Kind      row.Kind `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	OK        bool     `json:"ok"`
	// Message says what happens, or why not.
	Message string `json:"message"`
}

type actionsOut struct {
	Results []result `json:"results"`
}

// action is something that can be asked of an object now.
type action struct {
	Action verb   `json:"action"`
	Label  string `json:"label"`
	// Danger: it stops or removes something.
	Danger bool `json:"danger"`
}

func (s *Server) registerActions(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "act", Method: http.MethodPost, Path: prefix + "/actions", Summary: "Ask something of objects, or what it would do", Errors: []int{400, 401, 503},
	}, func(ctx context.Context, in *actionsIn) (*body[actionsOut], error) {
		out, err := s.act(ctx, in)
		if err != nil {
			return nil, s.problem(err)
		}
		return &body[actionsOut]{*out}, nil
	})
}

func (s *Server) act(ctx context.Context, in *actionsIn) (*actionsOut, error) {
	b := &in.Body
	if (b.Action == actPriority) != (b.Priority != nil) {
		return nil, apierrors.NewBadRequest("priority: goes with the action priority, from 0 to 100")
	}
	c, err := s.client(callerOf(ctx))
	if err != nil {
		return nil, err
	}
	d := doer{s: s, c: c, dry: b.DryRun, action: b.Action}
	if b.Priority != nil {
		d.priority = *b.Priority
	}
	out := &actionsOut{}
	for _, t := range b.Items {
		out.Results = append(out.Results, result{Kind: row.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name})
	}
	d.all(ctx, b.Items, out.Results)
	return out, nil
}

// doer does one thing to many objects.
type doer struct {
	s        *Server
	c        client.Client // as the caller
	dry      bool
	action   verb
	priority int32
}

// all does it to each. Tasks are requeued by their jobs, all of one job in one wish: a job
// takes up one at a time.
func (d *doer) all(ctx context.Context, items []target, results []result) {
	batches := map[types.NamespacedName][]int{}
	for i, t := range items {
		if d.action == actRequeue && t.Kind == string(row.Tasks) {
			if job := d.jobOf(ctx, t); job != "" {
				key := types.NamespacedName{Namespace: t.Namespace, Name: job}
				batches[key] = append(batches[key], i)
				continue
			}
		}
		said, err := d.one(ctx, t)
		results[i].set(said, err)
	}
	for _, job := range slices.SortedFunc(maps.Keys(batches), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
		d.requeue(ctx, job, items, batches[job], results)
	}
}

func (r *result) set(said string, err error) {
	r.OK, r.Message = err == nil, said
	if err == nil {
		return
	}
	r.Message = err.Error()
	var is apierrors.APIStatus
	if errors.As(err, &is) {
		r.Message = is.Status().Message
	}
}

// one does it to one object.
func (d *doer) one(ctx context.Context, t target) (string, error) {
	k := row.Kind(t.Kind)
	o := kinds[k].fresh()
	if d.action == actDelete {
		return d.remove(ctx, k, t, o)
	}
	is := deeds[k][d.action]
	if is.do == nil {
		return "", fmt.Errorf("%s cannot be asked of %s", d.action, t.Kind)
	}
	return is.do(ctx, d, t)
}

// read gets the object that is meant, as the caller.
func (d *doer) read(ctx context.Context, t target, o client.Object) error {
	if err := d.c.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, o); err != nil {
		return err
	}
	if t.UID != "" && string(o.GetUID()) != t.UID {
		return fmt.Errorf("%s %s is another one now: the one that was meant is gone", t.Kind, t.Name)
	}
	return nil
}

func (d *doer) remove(ctx context.Context, k row.Kind, t target, o client.Object) (string, error) {
	if err := d.read(ctx, t, o); err != nil {
		return "", err
	}
	uid := o.GetUID()
	opts := []client.DeleteOption{client.Preconditions{UID: &uid}, client.PropagationPolicy("Background")}
	if d.dry {
		opts = append(opts, client.DryRunAll)
	}
	if err := d.c.Delete(ctx, o, opts...); err != nil {
		return "", err
	}
	return d.tense("is deleted", "will be deleted") + consequence(actDelete, d.s.world.Get(k, t.Namespace, t.Name)), nil
}

// tense is for what has happened, or would.
func (d *doer) tense(done, would string) string {
	if d.dry {
		return would
	}
	return done
}

// consequence says what follows of an action, by what the object is doing now.
func consequence(action verb, i *events.Item) string {
	if i == nil || i.Row.Progress == nil {
		return ""
	}
	p := i.Row.Progress
	running, waiting := count(p.Running, "that runs is stopped", "that run are stopped"), count(p.Waiting, "that waits is called off", "that wait are called off")
	switch action {
	case actPause:
		running, waiting = count(p.Running, "that runs goes on to its end", "that run go on to their end"), count(p.Waiting, "that waits is held back", "that wait are held back")
	case actCancel, actDelete:
	default:
		return ""
	}
	switch {
	case running != "" && waiting != "":
		return "; of its parts " + running + ", " + waiting
	case running+waiting != "":
		return "; of its parts " + running + waiting
	}
	return ""
}

func count(n int32, one, more string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "one " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
