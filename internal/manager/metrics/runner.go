package metrics

import (
	"cmp"
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/platform/tracing"
)

// Informers is the part of a cache that Collector needs.
type Informers interface {
	GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Collector maintains the metrics on the leader. On standbys everything would be counted twice.
type Collector struct {
	Informers Informers
	// Flows enables metrics of flows. Without the flow controllers their CRD may not be installed.
	Flows bool
	Now   func() time.Time
	// Lives records the traces of tasks. If nil, none are recorded.
	Lives *tracing.TaskRecorder
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Collector) NeedLeaderElection() bool { return true }

// Start maintains the metrics until ctx ends.
func (c *Collector) Start(ctx context.Context) error {
	var undo []func()
	defer func() {
		for _, f := range undo {
			f()
		}
	}()
	for _, follow := range c.listCounts() {
		unfollow, err := follow(ctx)
		if err != nil {
			return err
		}
		undo = append(undo, unfollow)
	}
	<-ctx.Done()
	return nil
}

// listCounts returns the functions that start each count.
func (c *Collector) listCounts() []func(context.Context) (func(), error) {
	ofTasks := newCount(tasks, toStrings(lifecycle.TaskStates), func(t *v1alpha1.Task) string {
		return string(lifecycle.TaskState(t.Status.State).OrPending())
	})
	ofTasks.changed = func(was, is *v1alpha1.Task) {
		now := c.Now()
		recordAttempts(was, is, now)
		if c.Lives != nil {
			c.Lives.RecordChange(was, is, now)
		}
	}
	if c.Lives != nil {
		ofTasks.gone = c.Lives.ForgetTask
	}
	ofJobs := newCount(jobs, toStrings(lifecycle.JobStates), func(j *v1alpha1.Job) string {
		return cmp.Or(j.Status.State, string(lifecycle.JobUnderConstruction))
	})
	ofRobots := newCount(robots, toStrings(lifecycle.RobotPhases), func(r *v1alpha1.Robot) string {
		return string(lifecycle.ParseRobotPhase(r.Status.Phase))
	})
	all := []func(context.Context) (func(), error){
		func(ctx context.Context) (func(), error) {
			return ofTasks.followObjects(ctx, c.Informers, &v1alpha1.Task{})
		},
		func(ctx context.Context) (func(), error) {
			return ofJobs.followObjects(ctx, c.Informers, &v1alpha1.Job{})
		},
		func(ctx context.Context) (func(), error) {
			return ofRobots.followObjects(ctx, c.Informers, &v1alpha1.Robot{})
		},
	}
	if c.Flows {
		ofFlows := newCount(flows, toStrings(lifecycle.FlowPhases), func(f *flowv1.JobFlow) string {
			return cmp.Or(string(f.Status.State.Phase), string(lifecycle.FlowPending))
		})
		all = append(all, func(ctx context.Context) (func(), error) {
			return ofFlows.followObjects(ctx, c.Informers, &flowv1.JobFlow{})
		})
	}
	return all
}

func toStrings[S ~string](states []S) []string {
	var all []string
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}
