package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/events"
	"k8s4r.io/k8s4r/internal/events/row"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/wish"
)

// verb is what can be asked of objects.
type verb string

// The actions.
const (
	actPause    verb = "pause"
	actResume   verb = "resume"
	actCancel   verb = "cancel"
	actRequeue  verb = "requeue"
	actPriority verb = "priority"
	actCordon   verb = "cordon"
	actDrain    verb = "drain"
	actUncordon verb = "uncordon"
	actDelete   verb = "delete"
)

// labels of the actions, in the order in which they are offered.
var labels = []action{
	{actPause, "Pause", false}, {actResume, "Resume", false}, {actRequeue, "Requeue", false}, {actPriority, "Priority", false}, {actCordon, "Cordon", false},
	{actUncordon, "Uncordon", false}, {actDrain, "Drain", true}, {actCancel, "Cancel", true}, {actDelete, "Delete", true},
}

// doing carries an action out on one object.
type doing func(ctx context.Context, d *doer, t target) (string, error)

// deed is an action on one kind.
type deed struct {
	// makesSense tells whether there is anything to be done to an object as it is now.
	makesSense func(client.Object) bool
	do         doing
}

// deeds are what may be asked of each kind, and each of these can be deleted. Nothing may be asked of a group of tasks,
// which is its job's.
var deeds = map[row.Kind]map[verb]deed{
	row.Jobs: {
		actPause: amends(wish.Pause.Judge), actResume: amends(wish.Resume.Judge), actCancel: amends(wish.Cancel.Judge),
		actRequeue: amends(wish.Requeue(v1alpha1.Requeue{Scope: v1alpha1.RequeueAll})), actPriority: {unended, prioritize},
	},
	row.Tasks: {actRequeue: {putsBack, requeueByHand}},
	row.Robots: {
		actCordon: amends(wish.Cordon.Judge), actDrain: amends(wish.Drain.Judge), actUncordon: amends(wish.Uncordon.Judge),
	},
	row.JobFlows: {
		actPause: amends(wish.SuspendFlow), actResume: {resumable, resumeFlow}, actCancel: amends(wish.CancelFlow), actRequeue: amends(retryFailed),
	},
	row.CronJobFlows: {actPause: amends(suspendCron(true)), actResume: amends(suspendCron(false))},
	row.VCJobs: {
		actPause:  commands(batchv1.AbortJobAction, batchv1.JobPending, batchv1.JobRunning, batchv1.JobRestarting),
		actResume: commands(batchv1.ResumeJobAction, batchv1.JobAborted),
		actCancel: commands(batchv1.TerminateJobAction, batchv1.JobPending, batchv1.JobRunning, batchv1.JobRestarting, batchv1.JobAborted),
	},
	row.RayClusters: {actPause: amends(suspendRay(true)), actResume: amends(suspendRay(false))},
	row.Pods:        {},
}

// amends is a wish that is written into the spec of an object. It makes sense where it
// changes something.
func amends[T client.Object](judge func(T) (string, error)) deed {
	return deed{makesSense: func(o client.Object) bool {
		wished := o.DeepCopyObject().(T)
		_, err := judge(wished)
		return err == nil && !reflect.DeepEqual(o, client.Object(wished))
	}, do: amend(judge)}
}

// amend writes a wish into the spec of an object, as the caller.
func amend[T client.Object](judge func(T) (string, error)) doing {
	return func(ctx context.Context, d *doer, t target) (string, error) {
		k := row.Kind(t.Kind)
		read := func() (T, error) {
			o := kinds[k].fresh().(T)
			return o, d.read(ctx, t, o)
		}
		var opts []client.PatchOption
		if d.dry {
			opts = append(opts, client.DryRunAll)
		}
		_, said, err := wish.Amend(ctx, d.c, t.Kind+" "+t.Name, read, judge, opts...)
		if err != nil {
			return "", err
		}
		return said + consequence(d.action, d.s.world.Get(k, t.Namespace, t.Name)), nil
	}
}

// unended is a job whose priority still counts.
func unended(o client.Object) bool {
	return !lifecycle.JobState(o.(*v1alpha1.Job).Status.State).Terminal()
}

// putsBack is a task that a requeue does anything to.
func putsBack(o client.Object) bool {
	needed, err := wish.PutsBack(o.(*v1alpha1.Task))
	return err == nil && needed
}

// resumable is a flow that is suspended, or that an aborted job holds up.
func resumable(o client.Object) bool {
	f := o.(*flowv1.JobFlow)
	_, err := wish.ResumeFlow(f.DeepCopy())
	return f.Spec.Suspend && err == nil || errors.Is(err, wish.ErrAborted)
}

func prioritize(ctx context.Context, d *doer, t target) (string, error) {
	return amend(wish.Priority(d.priority))(ctx, d, t)
}

// requeueByHand is for a task without a job, which nobody could put back.
func requeueByHand(ctx context.Context, d *doer, t target) (string, error) {
	task := &v1alpha1.Task{}
	if err := d.read(ctx, t, task); err != nil {
		return "", err
	}
	_, err := wish.PutsBack(task)
	return "", err
}

func retryFailed(f *flowv1.JobFlow) (string, error) { return wish.RetryFlow(f, nil) }

// resumeFlow lets a flow go on, and the jobs that were aborted and hold it up.
func resumeFlow(ctx context.Context, d *doer, t target) (string, error) {
	said, err := amend(wish.ResumeFlow)(ctx, d, t)
	if !errors.Is(err, wish.ErrAborted) {
		return said, err
	}
	f := &flowv1.JobFlow{}
	if err := d.read(ctx, t, f); err != nil {
		return "", err
	}
	for _, name := range wish.AbortedJobs(f) {
		job := &batchv1.Job{}
		err := d.read(ctx, target{Kind: string(row.VCJobs), Namespace: t.Namespace, Name: name}, job)
		if err == nil {
			_, err = d.command(ctx, job, batchv1.ResumeJobAction)
		}
		if err != nil {
			return "", err
		}
	}
	return "resume requested of the jobs that were aborted", nil
}

func suspend(is *bool, want bool) (string, error) {
	word := map[bool]string{true: "suspended", false: "resumed"}[want]
	if *is == want {
		return word + " already", nil
	}
	*is = want
	return word, nil
}

func suspendCron(want bool) func(*cronv1.CronJobFlow) (string, error) {
	return func(c *cronv1.CronJobFlow) (string, error) { return suspend(&c.Spec.Suspend, want) }
}

func suspendRay(want bool) func(*rayv1.RayCluster) (string, error) {
	return func(c *rayv1.RayCluster) (string, error) {
		is := c.Spec.Suspend != nil && *c.Spec.Suspend
		said, err := suspend(&is, want)
		if c.Spec.Suspend == nil && !want {
			return said, err
		}
		c.Spec.Suspend = &is
		return said, err
	}
}

// commands is what a job of Pods is asked by a Command, in the phases that allow for it.
func commands(name batchv1.Action, from ...batchv1.JobPhase) deed {
	allowed := func(o client.Object) bool { return slices.Contains(from, phaseOf(o.(*batchv1.Job))) }
	return deed{makesSense: allowed, do: func(ctx context.Context, d *doer, t target) (string, error) {
		job := &batchv1.Job{}
		if err := d.read(ctx, t, job); err != nil {
			return "", err
		}
		if !allowed(job) {
			return "", fmt.Errorf("job %s is %s: %s is possible when it is %s", job.Name, phaseOf(job), d.action, oneOf(from))
		}
		return d.command(ctx, job, name)
	}}
}

func phaseOf(j *batchv1.Job) batchv1.JobPhase {
	return cmp.Or(j.Status.State.Phase, batchv1.JobPending)
}

// command asks a job's controller, which deletes the Command before it carries it out.
func (d *doer) command(ctx context.Context, job *batchv1.Job, name batchv1.Action) (string, error) {
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
	return string(d.action) + " requested" + consequence(d.action, d.s.world.Get(row.VCJobs, job.Namespace, job.Name)), nil
}

func oneOf(all []batchv1.JobPhase) string {
	var names []string
	for _, p := range all {
		names = append(names, string(p))
	}
	return wish.Few(names)
}

// jobOf is the job that can requeue a task. Empty: there is none, or the task cannot be read.
func (d *doer) jobOf(ctx context.Context, t target) string {
	task := &v1alpha1.Task{}
	if d.read(ctx, t, task) != nil {
		return ""
	}
	return task.Spec.JobName
}

// requeue puts tasks of one job back, in one wish.
func (d *doer) requeue(ctx context.Context, job types.NamespacedName, items []target, which []int, results []result) {
	var names []string
	var asked []int
	for _, i := range which {
		task := &v1alpha1.Task{}
		err := d.read(ctx, items[i], task)
		needed := false
		if err == nil {
			needed, err = wish.PutsBack(task)
		}
		if err != nil || !needed {
			results[i].set("is "+string(lifecycle.TaskPending)+" already", err)
			continue
		}
		names, asked = append(names, task.Name), append(asked, i)
	}
	if len(names) == 0 {
		return
	}
	said, err := amend(wish.Requeue(v1alpha1.Requeue{Tasks: names}))(ctx, d, target{Kind: string(row.Jobs), Namespace: job.Namespace, Name: job.Name})
	for _, i := range asked {
		results[i].set(said, err)
	}
}

// actions that make sense of an object as it is now. What the caller may not do is found out
// when it is tried: asking for each right of each object would be a burst of reviews.
func (s *Server) actions(i *events.Item) []action {
	out := []action{}
	all, asked := deeds[i.Row.Kind]
	if !asked {
		return out
	}
	for _, a := range labels {
		can := all[a.Action]
		if a.Action == actDelete || can.do != nil && can.makesSense(i.Object) {
			out = append(out, a)
		}
	}
	return out
}
