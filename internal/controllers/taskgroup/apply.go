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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/progress"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/placement"
)

// apply creates, changes and deletes Tasks and writes the status; none depends on
// the others. It tells whether to look again at once.
func (c *Controller) apply(ctx context.Context, w *World, steps Steps) (again bool, err error) {
	for _, why := range steps.Why {
		ctrl.LoggerFrom(ctx).V(1).Info(why)
	}
	if steps.Withdraw {
		c.Binder.Forget(w.Group.Namespace, w.Group.Name)
	}
	again, created := c.grow(ctx, w, steps)
	if message := denied(created); message != "" {
		c.deny(w.Group, message)
		again, created = true, nil // the status says it, and when to try again
	}
	return again, errors.Join(created, c.change(ctx, w, steps), c.writeStatus(ctx, w.Group, steps))
}

func (c *Controller) writeStatus(ctx context.Context, g *v1alpha1.TaskGroup, steps Steps) error {
	if steps.Status == nil {
		return nil
	}
	g.Status = *steps.Status
	if written, err := c.expect.UpdateStatus(ctx, c, g); !written {
		return err
	}
	c.tally.with(g.UID, func(m *members) { m.lastStatus = c.Now() })
	c.tell(g, steps)
	return nil
}

// ReasonRobotBlocked is the reason of the event that tells of a robot which a
// group leaves alone.
const ReasonRobotBlocked = "RobotBlocked"

// tell makes events of what has been written.
func (c *Controller) tell(g *v1alpha1.TaskGroup, steps Steps) {
	for _, change := range steps.Changes {
		kind := corev1.EventTypeNormal
		if change.To == lifecycle.JobFailed {
			kind = corev1.EventTypeWarning
		}
		c.Recorder.Eventf(g, nil, kind, progress.Word(change.To), "Run", "%s", change.Why)
	}
	if steps.Rollover != "" {
		rolled := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionRolledOver)
		c.Recorder.Eventf(g, nil, corev1.EventTypeNormal, steps.Rollover, "Update", "%s", rolled.Message)
	}
	for _, robot := range steps.Blocked {
		c.Recorder.Eventf(g, nil, corev1.EventTypeWarning, ReasonRobotBlocked, "Run", "robot %s failed too many tasks of the group and gets no more of them", robot)
	}
}

// grow asks for robots and creates Tasks.
func (c *Controller) grow(ctx context.Context, w *World, steps Steps) (again bool, err error) {
	if err := c.create(ctx, w.Group, c.rest(w.mould(), steps.Complete)); err != nil {
		return false, err
	}
	if len(steps.Ask) == 0 {
		if len(steps.Complete) > 0 {
			c.tally.with(w.Group.UID, func(m *members) { m.denial = denial{} })
		}
		return false, nil
	}
	g := w.Group
	var asked []placement.Demand
	var news int
	c.tally.with(g.UID, func(m *members) {
		asked, news = demands(g, steps.Ask, m.taken), m.news
	})
	seats, err := c.Binder.Bind(ctx, g, w.Job, asked)
	if err != nil {
		return false, fmt.Errorf("find robots: %w", err)
	}
	tasks, bound, left := w.mould().chosen(steps.Ask, asked, seats, steps.Idle)
	c.tally.with(g.UID, func(m *members) { m.note(c.Now(), bound, left, news) })
	if err := c.create(ctx, g, tasks); err != nil {
		return false, err
	}
	if len(tasks) > 0 {
		c.tally.with(g.UID, func(m *members) { m.denial = denial{} })
	}
	return left == 0, nil
}

// rest are the Tasks that replicas lack.
func (c *Controller) rest(in mould, replicas []Replica) (tasks []*v1alpha1.Task) {
	c.tally.with(in.group.UID, func(m *members) {
		for _, r := range replicas {
			for _, def := range r.Tasks {
				name := taskName(in.group, r.Index, def.Name, m.taken)
				tasks = append(tasks, in.task(name, r.Index, def, placement.Robot{Name: r.Robot}))
			}
		}
	})
	return tasks
}

// note remembers how many replicas found a robot, and that some are left to
// wait until more seats are found.
func (m *members) note(now time.Time, bound, left, news int) {
	if bound > 0 {
		m.lastBound = now
	}
	if left > 0 {
		m.askedAt = news + 1
	}
}

// begin notes that a Task is about to be created.
func (m *members) begin(name string, index int, bound bool) {
	m.next = max(m.next, index+1)
	if !bound {
		m.loose[name] = true
	}
}

// maxBatch is how many creates of one group go at once.
const maxBatch = 16

// create creates the Tasks, few at a time until that has worked: a mistake
// that the API server refuses is refused once, not a thousand times.
func (c *Controller) create(ctx context.Context, g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) error {
	var batch int
	c.tally.with(g.UID, func(m *members) { batch = m.batch })
	for len(tasks) > 0 {
		n := min(batch, len(tasks))
		if batch == maxBatch {
			n = len(tasks)
		}
		if err := c.createAll(ctx, g, tasks[:n]); err != nil {
			c.giveBack(g, tasks[n:])
			c.tally.with(g.UID, func(m *members) { m.batch = 1 })
			return err
		}
		tasks, batch = tasks[n:], min(2*batch, maxBatch)
	}
	c.tally.with(g.UID, func(m *members) { m.batch = batch })
	return nil
}

func (c *Controller) createAll(ctx context.Context, g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) error {
	var all errgroup.Group
	all.SetLimit(maxBatch)
	errs := make([]error, len(tasks))
	for i, t := range tasks {
		all.Go(func() error {
			errs[i] = c.createOne(ctx, g, t)
			return nil
		})
	}
	_ = all.Wait() // each error is in errs
	return errors.Join(errs...)
}

func (c *Controller) createOne(ctx context.Context, g *v1alpha1.TaskGroup, t *v1alpha1.Task) error {
	name, index := t.Name, indexOf(t)
	c.expect.Create(g.UID, name)
	c.tally.with(g.UID, func(m *members) { m.begin(name, index, t.Spec.TargetRobot != "") })
	err := c.Create(ctx, t)
	if err == nil {
		return nil
	}
	c.expect.Created(g.UID, name)
	c.Binder.Release(g.Namespace, name)
	if apierrors.IsAlreadyExists(err) {
		return c.meet(ctx, g, t)
	}
	return fmt.Errorf("create task %s: %w", name, err)
}

// giveBack returns the robots of Tasks that are not created after all.
func (c *Controller) giveBack(g *v1alpha1.TaskGroup, tasks []*v1alpha1.Task) {
	for _, t := range tasks {
		c.Binder.Release(g.Namespace, t.Name)
	}
}

// meet looks at who holds a name that is wanted for a Task. Our own Task is
// good news. Anybody else's keeps the name, and ours gets another.
func (c *Controller) meet(ctx context.Context, g *v1alpha1.TaskGroup, t *v1alpha1.Task) error {
	var other v1alpha1.Task
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(t), &other); err != nil {
		return fmt.Errorf("get task %s: %w", t.Name, err)
	}
	if metav1.IsControlledBy(&other, g) {
		return nil
	}
	held := t.Name
	c.tally.with(g.UID, func(m *members) {
		m.taken[held] = true
		t.Name = taskName(g, indexOf(t), t.Spec.Name, m.taken)
	})
	if t.Name == held {
		return fmt.Errorf("create task %s: the name is held by another owner", held)
	}
	return c.createOne(ctx, g, t)
}
