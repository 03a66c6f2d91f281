package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/platform/patch"
)

// verb is the name of an action.
type verb string

// Actions on objects.
const (
	actPause    verb = "pause"
	actResume   verb = "resume"
	actCancel   verb = "cancel"
	actRequeue  verb = "requeue"
	actPriority verb = "priority"
	actCordon   verb = "cordon"
	actDrain    verb = "drain"
	actUncordon verb = "uncordon"
	actUnlock   verb = "unlock"
	actDelete   verb = "delete"
	actApprove  verb = "approve"
	actAbort    verb = "abort"
	actRevert   verb = "revert"
)

// actionLabels are the labels of the actions, in the order of display.
var actionLabels = []action{
	{actPause, "Pause", false}, {actResume, "Resume", false}, {actRequeue, "Requeue", false}, {actPriority, "Priority", false}, {actCordon, "Cordon", false},
	{actUncordon, "Uncordon", false}, {actDrain, "Drain", true}, {actUnlock, "Unlock", true}, {actApprove, "Approve", false}, {actAbort, "Abort", true}, {actRevert, "Revert", true},
	{actCancel, "Cancel", true}, {actDelete, "Delete", true},
}

// actionFunc applies an action to one object.
type actionFunc func(ctx context.Context, d *executor, t target) (string, error)

// actionRule is an action on one kind.
type actionRule struct {
	// isPossible reports whether the object's state allows the action and the action would change
	// something.
	isPossible func(client.Object) bool
	do         actionFunc
}

// actionRules are the actions on each kind. Objects of each of these kinds can be deleted, too. A task
// group has no actions of its own; users act on its job.
var actionRules = map[row.Kind]map[verb]actionRule{
	row.Jobs: {
		actPause: newPatchAction(actions.Pause.Apply), actResume: newPatchAction(actions.Resume.Apply), actCancel: newPatchAction(actions.Cancel.Apply),
		actRequeue: newPatchAction(actions.NewRequeue(v1alpha1.Requeue{Scope: v1alpha1.RequeueAll})), actPriority: {canPrioritize, setPriority},
	},
	row.Rollouts: {
		actApprove: {canApprove, approveWave}, actPause: newPatchAction(actions.PauseRollout.Apply), actResume: newPatchAction(actions.ResumeRollout.Apply),
		actAbort: newPatchAction(actions.AbortRollout.Apply), actRevert: newPatchAction(actions.RevertRollout.Apply),
	},
	row.Tasks: {actRequeue: {canRequeue, rejectRequeue}},
	row.Robots: {
		actCordon: newPatchAction(actions.Cordon.Apply), actDrain: newPatchAction(actions.Drain.Apply), actUncordon: newPatchAction(actions.Uncordon.Apply),
		actUnlock: newPatchAction(actions.UnlockMaintenance),
	},
	row.JobFlows: {
		actPause: newPatchAction(actions.SuspendFlow), actResume: {canResume, resumeFlow}, actCancel: newPatchAction(actions.CancelFlow), actRequeue: newPatchAction(retryFailedSteps),
	},
	row.CronJobFlows: {actPause: newPatchAction(suspendCron(true)), actResume: newPatchAction(suspendCron(false))},
	row.VCJobs: {
		actPause:  newCommandAction(batchv1.AbortJobAction, batchv1.JobPending, batchv1.JobRunning, batchv1.JobRestarting),
		actResume: newCommandAction(batchv1.ResumeJobAction, batchv1.JobAborted),
		actCancel: newCommandAction(batchv1.TerminateJobAction, batchv1.JobPending, batchv1.JobRunning, batchv1.JobRestarting, batchv1.JobAborted),
	},
	row.RayClusters: {actPause: newPatchAction(suspendRay(true)), actResume: newPatchAction(suspendRay(false))},
	row.Pods:        {},
}

// newPatchAction returns an action that changes the spec of an object. It is offered only if it
// would change something.
func newPatchAction[T client.Object](apply func(T) (string, error)) actionRule {
	return actionRule{isPossible: func(o client.Object) bool {
		changed := o.DeepCopyObject().(T)
		_, err := apply(changed)
		return err == nil && !reflect.DeepEqual(o, client.Object(changed))
	}, do: patchSpec(apply)}
}

// patchSpec patches the spec of an object with the permissions of the caller.
func patchSpec[T client.Object](apply func(T) (string, error)) actionFunc {
	return func(ctx context.Context, d *executor, t target) (string, error) {
		k := row.Kind(t.Kind)
		read := func() (T, error) {
			o := kinds[k].fresh().(T)
			return o, d.readTarget(ctx, t, o)
		}
		var opts []client.PatchOption
		if d.dry {
			opts = append(opts, client.DryRunAll)
		}
		_, message, err := patch.RetryOnConflict(ctx, d.c, t.Kind+" "+t.Name, read, apply, opts...)
		if err != nil {
			return "", err
		}
		return message + describeConsequence(d.action, d.s.store.Get(k, t.Namespace, t.Name)), nil
	}
}

// canPrioritize reports whether the job has not ended.
func canPrioritize(o client.Object) bool {
	return !lifecycle.JobState(o.(*v1alpha1.Job).Status.State).IsTerminal()
}

// canRequeue reports whether a requeue would change the task.
func canRequeue(o client.Object) bool {
	needed, err := actions.CanRequeueTask(o.(*v1alpha1.Task))
	return err == nil && needed
}

// canResume reports whether the flow is suspended or waits for an aborted job.
func canResume(o client.Object) bool {
	f := o.(*flowv1.JobFlow)
	_, err := actions.ResumeFlow(f.DeepCopy())
	return f.Spec.Suspend && err == nil || errors.Is(err, actions.ErrAborted)
}

// canApprove reports whether an approval of a wave would change something.
func canApprove(o client.Object) bool {
	r := o.(*v1alpha1.Rollout)
	for i := range r.Spec.Waves {
		if rollout.StateOfWave(r, i) == rollout.WaveNeedsApproval {
			_, err := actions.ApproveWaves([]string{r.Spec.Waves[i].Name})(r.DeepCopy())
			return err == nil
		}
	}
	return false
}

func approveWave(ctx context.Context, d *executor, t target) (string, error) {
	return patchSpec(actions.ApproveWaves([]string{d.wave}))(ctx, d, t)
}

func setPriority(ctx context.Context, d *executor, t target) (string, error) {
	return patchSpec(actions.SetPriority(d.priority))(ctx, d, t)
}

// rejectRequeue handles tasks without a job, which cannot be requeued. It returns the reason as
// an error.
func rejectRequeue(ctx context.Context, d *executor, t target) (string, error) {
	task := &v1alpha1.Task{}
	if err := d.readTarget(ctx, t, task); err != nil {
		return "", err
	}
	_, err := actions.CanRequeueTask(task)
	return "", err
}

func retryFailedSteps(f *flowv1.JobFlow) (string, error) { return actions.RetryFlow(f, nil) }

// resumeFlow resumes a flow and its aborted jobs.
func resumeFlow(ctx context.Context, d *executor, t target) (string, error) {
	message, err := patchSpec(actions.ResumeFlow)(ctx, d, t)
	if !errors.Is(err, actions.ErrAborted) {
		return message, err
	}
	f := &flowv1.JobFlow{}
	if err := d.readTarget(ctx, t, f); err != nil {
		return "", err
	}
	for _, name := range actions.AbortedJobs(f) {
		job := &batchv1.Job{}
		err := d.readTarget(ctx, target{Kind: string(row.VCJobs), Namespace: t.Namespace, Name: name}, job)
		if err == nil {
			_, err = d.createCommand(ctx, job, batchv1.ResumeJobAction)
		}
		if err != nil {
			return "", err
		}
	}
	return "resume requested for the aborted jobs", nil
}

func setSuspend(is *bool, want bool) (string, error) {
	word := map[bool]string{true: "suspended", false: "resumed"}[want]
	if *is == want {
		return "already " + word, nil
	}
	*is = want
	return word, nil
}

func suspendCron(want bool) func(*cronv1.CronJobFlow) (string, error) {
	return func(c *cronv1.CronJobFlow) (string, error) { return setSuspend(&c.Spec.Suspend, want) }
}

func suspendRay(want bool) func(*rayv1.RayCluster) (string, error) {
	return func(c *rayv1.RayCluster) (string, error) {
		is := c.Spec.Suspend != nil && *c.Spec.Suspend
		message, err := setSuspend(&is, want)
		if c.Spec.Suspend == nil && !want {
			return message, err
		}
		c.Spec.Suspend = &is
		return message, err
	}
}

// newCommandAction returns an action that sends a Command to a vcjob. It is allowed in the given
// phases.
func newCommandAction(name batchv1.Action, from ...batchv1.JobPhase) actionRule {
	allowed := func(o client.Object) bool { return slices.Contains(from, currentPhase(o.(*batchv1.Job))) }
	return actionRule{isPossible: allowed, do: func(ctx context.Context, d *executor, t target) (string, error) {
		job := &batchv1.Job{}
		if err := d.readTarget(ctx, t, job); err != nil {
			return "", err
		}
		if !allowed(job) {
			return "", fmt.Errorf("job %s is %s; %s is allowed in: %s", job.Name, currentPhase(job), d.action, joinPhases(from))
		}
		return d.createCommand(ctx, job, name)
	}}
}

func currentPhase(j *batchv1.Job) batchv1.JobPhase {
	return cmp.Or(j.Status.State.Phase, batchv1.JobPending)
}

// createCommand creates a Command. The job's controller deletes the Command before it runs it.
func (d *executor) createCommand(ctx context.Context, job *batchv1.Job, name batchv1.Action) (string, error) {
	ref := metav1.NewControllerRef(job, batchv1.GroupVersion.WithKind("Job"))
	c := &busv1.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, GenerateName: string(d.action) + "-", OwnerReferences: []metav1.OwnerReference{*ref}},
		Action:     string(name), TargetObject: ref,
	}
	var opts []client.CreateOption
	if d.dry {
		opts = append(opts, client.DryRunAll)
	}
	if err := d.c.Create(ctx, c, opts...); err != nil {
		return "", err
	}
	return string(d.action) + " requested" + describeConsequence(d.action, d.s.store.Get(row.VCJobs, job.Namespace, job.Name)), nil
}

func joinPhases(all []batchv1.JobPhase) string {
	var names []string
	for _, p := range all {
		names = append(names, string(p))
	}
	return actions.SummarizeNames(names)
}

// findJob returns the job that can requeue a task. It is empty if the task has no job or cannot be
// read.
func (d *executor) findJob(ctx context.Context, t target) string {
	task, err := d.readTask(ctx, t)
	if err != nil {
		return ""
	}
	return task.Spec.JobName
}

// readTask reads a task. An index of an array that has no Task is rendered: its requeue creates one.
func (d *executor) readTask(ctx context.Context, t target) (*v1alpha1.Task, error) {
	task := &v1alpha1.Task{}
	err := d.readTarget(ctx, t, task)
	if apierrors.IsNotFound(err) && t.UID == "" {
		if v, ok := d.s.findIndex(t.Namespace, t.Name); ok {
			return d.s.renderIndex(v).Object.(*v1alpha1.Task), nil
		}
	}
	return task, err
}

// requeueTasks requeues tasks of one job with one action.
func (d *executor) requeueTasks(ctx context.Context, job types.NamespacedName, items []target, which []int, results []result) {
	var names []string
	var asked []int
	for _, i := range which {
		task, err := d.readTask(ctx, items[i])
		needed := false
		if err == nil {
			needed, err = actions.CanRequeueTask(task)
		}
		if err != nil || !needed {
			results[i].setOutcome("already "+string(lifecycle.TaskPending), err)
			continue
		}
		names, asked = append(names, task.Name), append(asked, i)
	}
	if len(names) == 0 {
		return
	}
	message, err := patchSpec(actions.NewRequeue(v1alpha1.Requeue{Tasks: names}))(ctx, d, target{Kind: string(row.Jobs), Namespace: job.Namespace, Name: job.Name})
	for _, i := range asked {
		results[i].setOutcome(message, err)
	}
}

// listActions returns the actions that the object's state allows. It does not check the caller's
// permissions: a review of each action on each object would overload the API server.
func (s *Server) listActions(i *watch.Item) []action {
	out := []action{}
	all, asked := actionRules[i.Row.Kind]
	if !asked {
		return out
	}
	for _, a := range actionLabels {
		can := all[a.Action]
		if a.Action == actDelete && !isRenderedIndex(i) || can.do != nil && can.isPossible(i.Object) {
			out = append(out, a)
		}
	}
	return out
}

// isRenderedIndex reports whether an item is an index of an array that has no Task.
func isRenderedIndex(i *watch.Item) bool {
	t, ok := i.Object.(*v1alpha1.Task)
	return ok && t.Spec.Array != nil && t.UID == ""
}
