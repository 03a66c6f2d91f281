package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
)

// target identifies the object of an action.
type target struct {
	Kind      string `json:"kind" enum:"jobs,rollouts,tasks,robots,jobflows,cronjobflows,vcjobs,rayclusters,pods"`
	Namespace string `json:"namespace" minLength:"1"`
	Name      string `json:"name" minLength:"1"`
	// UID of the object. If empty, the object that has the name now.
	UID string `json:"uid,omitempty"`
}

type actionsIn struct {
	Body struct {
		Action   verb     `json:"action"`
		Items    []target `json:"items" minItems:"1" maxItems:"1000"`
		Priority *int32   `json:"priority,omitempty" minimum:"0" maximum:"100"`
		Wave     string   `json:"wave,omitempty" maxLength:"63" doc:"Wave that the action approve approves"`
		DryRun   bool     `json:"dryRun,omitempty" doc:"Report what would happen, without changing anything"`
	}
}

// result is the result of an action on one object.
type result struct {
	Kind      row.Kind `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	OK        bool     `json:"ok"`
	// Message describes the effect, or why the action failed.
	Message string `json:"message"`
}

type actionsOut struct {
	Results []result `json:"results"`
}

// action is an action that an object's state allows.
type action struct {
	Action verb   `json:"action"`
	Label  string `json:"label"`
	// Destructive is set for actions that stop or remove something, such as a maintenance.
	Destructive bool `json:"destructive"`
}

func (s *Server) registerActions(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "act", Method: http.MethodPost, Path: prefix + "/actions", Summary: "Apply an action to objects, or report what it would do", Errors: []int{400, 401, 403, 421, 503},
	}, func(ctx context.Context, in *actionsIn) (*body[actionsOut], error) {
		out, err := s.postActions(ctx, in)
		if err != nil {
			return nil, s.toAPIError(err)
		}
		return &body[actionsOut]{*out}, nil
	})
}

func (s *Server) postActions(ctx context.Context, in *actionsIn) (*actionsOut, error) {
	b := &in.Body
	if (b.Action == actPriority) != (b.Priority != nil) {
		return nil, apierrors.NewBadRequest("priority: required for the action priority, from 0 to 100, and not allowed for other actions")
	}
	if (b.Action == actApprove) != (b.Wave != "") {
		return nil, apierrors.NewBadRequest("wave: required for the action approve, and not allowed for other actions")
	}
	c, err := s.callerClient(callerFromContext(ctx))
	if err != nil {
		return nil, err
	}
	d := executor{s: s, c: c, dry: b.DryRun, action: b.Action, wave: b.Wave}
	if b.Priority != nil {
		d.priority = *b.Priority
	}
	out := &actionsOut{}
	for _, t := range b.Items {
		out.Results = append(out.Results, result{Kind: row.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name})
	}
	d.runAll(ctx, b.Items, out.Results)
	return out, nil
}

// executor applies one action to several objects.
type executor struct {
	s        *Server
	c        client.Client // has the permissions of the caller
	dry      bool
	action   verb
	priority int32
	wave     string
}

// runAll applies the action to each item. All tasks of a job are requeued with one action of the
// job, because a job handles one action at a time.
func (d *executor) runAll(ctx context.Context, items []target, results []result) {
	batches := map[types.NamespacedName][]int{}
	for i, t := range items {
		if d.action == actRequeue && t.Kind == string(row.Tasks) {
			if job := d.findJob(ctx, t); job != "" {
				key := types.NamespacedName{Namespace: t.Namespace, Name: job}
				batches[key] = append(batches[key], i)
				continue
			}
		}
		message, err := d.runOne(ctx, t)
		results[i].setOutcome(message, err)
	}
	for _, job := range slices.SortedFunc(maps.Keys(batches), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
		d.requeueTasks(ctx, job, items, batches[job], results)
	}
}

func (r *result) setOutcome(message string, err error) {
	r.OK, r.Message = err == nil, message
	if err == nil {
		return
	}
	r.Message = err.Error()
	var is apierrors.APIStatus
	if errors.As(err, &is) {
		r.Message = is.Status().Message
	}
}

// runOne applies the action to one object.
func (d *executor) runOne(ctx context.Context, t target) (string, error) {
	k := row.Kind(t.Kind)
	o := kinds[k].fresh()
	if d.action == actDelete {
		return d.deleteTarget(ctx, k, t, o)
	}
	is := actionRules[k][d.action]
	if is.do == nil {
		return "", fmt.Errorf("action %s is not available for %s", d.action, t.Kind)
	}
	return is.do(ctx, d, t)
}

// readTarget reads the target into o with the permissions of the caller. It returns an error if
// the UID does not match.
func (d *executor) readTarget(ctx context.Context, t target, o client.Object) error {
	if err := d.c.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, o); err != nil {
		return err
	}
	if t.UID != "" && string(o.GetUID()) != t.UID {
		return fmt.Errorf("%s %s has another UID than requested: the object was deleted and created again", t.Kind, t.Name)
	}
	return nil
}

func (d *executor) deleteTarget(ctx context.Context, k row.Kind, t target, o client.Object) (string, error) {
	if err := d.readTarget(ctx, t, o); err != nil {
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
	return d.chooseTense("deleted", "will be deleted") + describeConsequence(actDelete, d.s.store.Get(k, t.Namespace, t.Name)), nil
}

// chooseTense returns done, or would for a dry run.
func (d *executor) chooseTense(done, would string) string {
	if d.dry {
		return would
	}
	return done
}

// partNouns name the parts that the progress of a kind counts.
var partNouns = map[row.Kind]string{row.Jobs: "task", row.TaskGroups: "task", row.JobFlows: "step", row.VCJobs: "Pod", row.RayClusters: "Pod"}

// describeConsequence describes how an action affects the running and pending parts of an object.
func describeConsequence(action verb, i *watch.Item) string {
	if i == nil || i.Row.Progress == nil {
		return ""
	}
	if i.Row.Kind == row.Rollouts {
		return describeRolloutConsequence(action, i)
	}
	running, pending := "will be stopped", "will be canceled"
	switch action {
	case actPause:
		if kind := i.Row.Kind; kind == row.VCJobs || kind == row.RayClusters { // they have no Pods while suspended
			break
		}
		running, pending = "will continue to the end", "will be held back"
	case actCancel, actDelete:
	default:
		return ""
	}
	var parts []string
	noun := cmp.Or(partNouns[i.Row.Kind], "part")
	if n := i.Row.Progress.Running; n > 0 {
		parts = append(parts, formatCount(n, "running "+noun)+" "+running)
	}
	if n := i.Row.Progress.Waiting; n > 0 {
		parts = append(parts, formatCount(n, "pending "+noun)+" "+pending)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, " and ")
}

// describeRolloutConsequence describes how an action affects the units of a Rollout.
func describeRolloutConsequence(action verb, i *watch.Item) string {
	p := i.Row.Progress
	if r, ok := i.Object.(*v1alpha1.Rollout); ok && action == actAbort && r.Spec.OnAbort == v1alpha1.OnAbortRevert {
		action = actRevert
	}
	switch changed := p.Done + p.Running + p.Failed; {
	case action == actRevert && changed > 0:
		return "; " + formatCount(changed, "unit") + " will return to the revision of before"
	case (action == actPause || action == actAbort) && p.Waiting > 0:
		return "; " + formatCount(p.Waiting, "unit") + " will not be changed"
	}
	return ""
}

func formatCount(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
