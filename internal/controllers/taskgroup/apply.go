package taskgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// apply creates, changes and deletes Tasks and writes the status, independently of each
// other. It returns again if the group must be reconciled again at once.
func (c *Controller) apply(ctx context.Context, w *Input, actions Actions) (again bool, err error) {
	for _, why := range actions.Reasons {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	if actions.ReleaseReservations {
		c.Binder.ForgetGroup(w.Group.Namespace, w.Group.Name)
	}
	again, created := c.createReplicas(ctx, w, actions)
	if message := denialMessage(created); message != "" {
		c.recordDenial(w.Group, message)
		again, created = true, nil // the next plan writes it to the status and sets the retry time
	}
	return again, errors.Join(created, c.changeTasks(ctx, w, actions), c.writeStatus(ctx, w.Group, actions))
}

func (c *Controller) writeStatus(ctx context.Context, g *v1alpha1.TaskGroup, actions Actions) error {
	if actions.Status == nil {
		return nil
	}
	g.Status = *actions.Status
	if written, err := c.expect.UpdateStatus(ctx, c, g); !written {
		return err
	}
	c.counts.withGroup(g.UID, func(m *groupTasks) { m.lastStatus = c.Now() })
	c.recordEvents(g, actions)
	return nil
}

// ReasonRobotBlocked is the reason of the event about a robot that gets no more Tasks of
// the group.
const ReasonRobotBlocked = "RobotBlocked"

// recordEvents records events for a status that was written. Of the changes of its state only a
// failure is one: which group has failed is not in the event of the job.
func (c *Controller) recordEvents(g *v1alpha1.TaskGroup, actions Actions) {
	for _, change := range actions.Changes {
		if change.To == lifecycle.JobFailed {
			c.Recorder.Eventf(g, nil, corev1.EventTypeWarning, taskcounts.StateReason(change.To), "Run", "%s", change.Why)
		}
	}
	if actions.Rollout != "" {
		rolled := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionRolledOut)
		c.Recorder.Eventf(g, nil, corev1.EventTypeNormal, actions.Rollout, "Update", "%s", rolled.Message)
	}
	for _, robot := range actions.BlockedRobots {
		c.Recorder.Eventf(g, nil, corev1.EventTypeWarning, ReasonRobotBlocked, "Run",
			"too many tasks of the group failed on robot %s; it gets no more of them", robot)
	}
}

// createReplicas requests robots and creates Tasks. It returns again if all requested
// replicas were created, so that more may fit into the window.
func (c *Controller) createReplicas(ctx context.Context, w *Input, actions Actions) (again bool, err error) {
	indexes, err := c.buildIndexTasks(ctx, w.newTaskBuilder(), actions.CreateIndexes)
	if err != nil {
		return false, err
	}
	missing := append(c.buildMissingTasks(w, actions.Complete), indexes...)
	if err := c.createTasks(ctx, w.Group, missing); err != nil {
		return false, err
	}
	if len(actions.Reserve) == 0 {
		if len(missing) > 0 {
			c.counts.withGroup(w.Group.UID, func(m *groupTasks) { m.denial = denial{} })
		}
		return false, nil
	}
	g := w.Group
	var demands []placement.Demand
	var reservations int
	c.counts.withGroup(g.UID, func(m *groupTasks) {
		demands, reservations = buildDemands(g, actions.Reserve, m.takenNames), m.reservationCount
	})
	reserved, err := c.Binder.ReserveRobots(ctx, g, w.Job, demands)
	if err != nil {
		return false, fmt.Errorf("reserve robots: %w", err)
	}
	tasks, bound, left := w.newTaskBuilder().buildTasks(actions.Reserve, demands, reserved, actions.CreateUnbound)
	c.counts.withGroup(g.UID, func(m *groupTasks) { m.recordReservations(c.Now(), bound, left, reservations) })
	if err := c.createTasks(ctx, g, tasks); err != nil {
		return false, err
	}
	if len(tasks) > 0 {
		c.counts.withGroup(g.UID, func(m *groupTasks) { m.denial = denial{} })
	}
	return left == 0, nil
}

// buildMissingTasks returns the missing Tasks of incomplete replicas.
func (c *Controller) buildMissingTasks(w *Input, replicas []Replica) (tasks []*v1alpha1.Task) {
	base, target := w.newBuilderOf(false), w.newBuilderOf(true)
	c.counts.withGroup(w.Group.UID, func(m *groupTasks) {
		for _, r := range replicas {
			in := base
			if r.Target {
				in = target
			}
			for _, def := range r.Tasks {
				name := taskName(in.group, r.Index, def.Name, m.takenNames)
				tasks = append(tasks, in.buildTask(name, r.Index, def, placement.Robot{Name: r.Robot}))
			}
		}
	})
	return tasks
}

// recordReservations records that replicas got a robot, and whether others wait for more
// reservations. reservations is the reservationCount before the request.
func (m *groupTasks) recordReservations(now time.Time, bound, left, reservations int) {
	if bound > 0 {
		m.lastBound = now
	}
	if left > 0 {
		m.requestedAt = reservations + 1
	}
}

// recordCreate records that a Task is about to be created.
func (m *groupTasks) recordCreate(t *v1alpha1.Task) {
	if i, ok := t.ArrayIndex(); ok {
		m.createdIndexes[t.Name] = i
		return
	}
	m.nextIndex = max(m.nextIndex, replicaIndex(t)+1)
	if t.Spec.TargetRobot == "" {
		m.createdUnbound[t.Name] = true
	}
}

// maxBatch bounds the concurrent creates of one group.
const maxBatch = 16

// createTasks creates the Tasks in batches that double while they succeed, so that a
// definition that the API server rejects is rejected once and not a thousand times.
func (c *Controller) createTasks(ctx context.Context, g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) error {
	var batch int
	c.counts.withGroup(g.UID, func(m *groupTasks) { batch = m.batch })
	for len(tasks) > 0 {
		n := min(batch, len(tasks))
		if batch == maxBatch {
			n = len(tasks)
		}
		if err := c.createBatch(ctx, g, tasks[:n]); err != nil {
			c.releaseRobots(g, tasks[n:])
			c.counts.withGroup(g.UID, func(m *groupTasks) { m.batch = 1 })
			return err
		}
		tasks, batch = tasks[n:], min(2*batch, maxBatch)
	}
	c.counts.withGroup(g.UID, func(m *groupTasks) { m.batch = batch })
	return nil
}

func (c *Controller) createBatch(ctx context.Context, g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) error {
	var all errgroup.Group
	all.SetLimit(maxBatch)
	errs := make([]error, len(tasks))
	for i, t := range tasks {
		all.Go(func() error {
			errs[i] = c.createTask(ctx, g, t)
			return nil
		})
	}
	_ = all.Wait() // each error is in errs
	return errors.Join(errs...)
}

func (c *Controller) createTask(ctx context.Context, g *v1alpha1.TaskGroup, t *v1alpha1.Task) error {
	name := t.Name
	c.expect.ExpectCreate(g.UID, name)
	c.counts.withGroup(g.UID, func(m *groupTasks) { m.recordCreate(t) })
	err := c.Create(ctx, t)
	if err == nil {
		return nil
	}
	c.Binder.ReleaseRobot(g.Namespace, name)
	if apierrors.IsAlreadyExists(err) {
		return c.adoptTask(ctx, g, t)
	}
	c.expect.ObserveCreate(g.UID, name)
	return fmt.Errorf("create task %s: %w", name, err)
}

// releaseRobots releases the reservations of Tasks that are not created.
func (c *Controller) releaseRobots(g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) {
	for _, t := range tasks {
		c.Binder.ReleaseRobot(g.Namespace, t.Name)
	}
}

// adoptTask handles a name that is taken. If the existing Task is ours, the create counts
// as successful, and the Task is expected until its event arrives. Otherwise the new Task gets
// another name.
func (c *Controller) adoptTask(ctx context.Context, g *v1alpha1.TaskGroup, t *v1alpha1.Task) error {
	existing := &v1alpha1.Task{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name}}
	owned, err := kit.ReadExisting(ctx, c.Live, g, existing)
	isSeen := false
	c.counts.withGroup(g.UID, func(m *groupTasks) { isSeen = m.hasRecord(t.Name) })
	if owned && err == nil && !isSeen {
		return nil
	}
	c.expect.ObserveCreate(g.UID, t.Name)
	if owned || err != nil {
		return err
	}
	taken := t.Name
	c.counts.withGroup(g.UID, func(m *groupTasks) {
		m.takenNames[taken] = true
		t.Name = renameTask(g, t, m.takenNames)
	})
	if t.Name == taken {
		return fmt.Errorf("create task %s: a task of another owner has that name; delete that task or rename the job", taken)
	}
	return c.createTask(ctx, g, t)
}
