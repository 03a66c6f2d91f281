package census

import (
	"cmp"
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/lifecycle"
	"k8s4r.io/k8s4r/internal/tracing"
)

// Informers is the part of a cache that a census needs.
type Informers interface {
	GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Census counts while the manager leads: two that stand by would count everything twice.
type Census struct {
	Informers Informers
	// Flows are counted too. Without the controller of flows their kind may not be there.
	Flows bool
	Now   func() time.Time
	// Lives of tasks are traced. Nil: they are not.
	Lives *tracing.Lives
}

// NeedLeaderElection is of manager.LeaderElectionRunnable.
func (*Census) NeedLeaderElection() bool { return true }

// Start counts until ctx ends.
func (c *Census) Start(ctx context.Context) error {
	var undo []func()
	defer func() {
		for _, f := range undo {
			f()
		}
	}()
	for _, follow := range c.counts() {
		unfollow, err := follow(ctx)
		if err != nil {
			return err
		}
		undo = append(undo, unfollow)
	}
	<-ctx.Done()
	return nil
}

// counts are what makes each count begin.
func (c *Census) counts() []func(context.Context) (func(), error) {
	ofTasks := newCount(tasks, words(lifecycle.TaskStates), func(t *v1alpha1.Task) string {
		return string(lifecycle.TaskState(t.Status.State).Normal())
	})
	ofTasks.changed = func(was, is *v1alpha1.Task) {
		now := c.Now()
		measure(was, is, now)
		if c.Lives != nil {
			c.Lives.Changed(was, is, now)
		}
	}
	if c.Lives != nil {
		ofTasks.gone = c.Lives.Gone
	}
	ofJobs := newCount(jobs, words(lifecycle.JobStates), func(j *v1alpha1.Job) string {
		return cmp.Or(j.Status.State, string(lifecycle.JobUnderConstruction))
	})
	ofRobots := newCount(robots, words(lifecycle.RobotPhases), func(r *v1alpha1.Robot) string {
		return string(lifecycle.ParseRobotPhase(r.Status.Phase))
	})
	all := []func(context.Context) (func(), error){
		func(ctx context.Context) (func(), error) { return ofTasks.follow(ctx, c.Informers, &v1alpha1.Task{}) },
		func(ctx context.Context) (func(), error) { return ofJobs.follow(ctx, c.Informers, &v1alpha1.Job{}) },
		func(ctx context.Context) (func(), error) { return ofRobots.follow(ctx, c.Informers, &v1alpha1.Robot{}) },
	}
	if c.Flows {
		ofFlows := newCount(flows, words(lifecycle.FlowPhases), func(f *flowv1.JobFlow) string {
			return cmp.Or(string(f.Status.State.Phase), string(lifecycle.FlowPending))
		})
		all = append(all, func(ctx context.Context) (func(), error) { return ofFlows.follow(ctx, c.Informers, &flowv1.JobFlow{}) })
	}
	return all
}

func words[S ~string](states []S) []string {
	var all []string
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}
