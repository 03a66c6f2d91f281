package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/robotattr"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/core/window"
)

// observeAgents reads the input of Plan for a Rollout of agents.
func (c *Controller) observeAgents(ctx context.Context, w *Input) error {
	r, k := w.Rollout, client.ObjectKeyFromObject(w.Rollout)
	var err error
	if w.Newer, err = c.findNewerOfAgents(ctx, r); err != nil {
		return err
	}
	if w.Newer != "" || !countsUnits(r) && r.Status.Phase != v1alpha1.RolloutComplete {
		c.memory.Update(k, r.UID, func(m *memory) { m.dropObserved(c.Now()) })
		return nil
	}
	var robots v1alpha1.RobotList
	if err := c.List(ctx, &robots, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list robots: %w", err)
	}
	if w.Calendar, err = c.windows.Read(ctx, c); err != nil {
		return err
	}
	w.Units = newAgentUnits(r, robots.Items, c.Heartbeats.LastHeartbeat)
	now := c.Now()
	c.memory.Update(k, r.UID, func(m *memory) {
		m.sightings.observeContact(now, w.Units)
		m.sightings.observeAgents(now, w.Units)
		m.sightings.finish()
	})
	return nil
}

// findNewerOfAgents returns the name of the Rollout that decides for the agents instead of this one, or "".
func (c *Controller) findNewerOfAgents(ctx context.Context, r *v1alpha1.Rollout) (string, error) {
	var list v1alpha1.RolloutList
	err := c.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{indexTarget: rollout.AgentsKey}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", fmt.Errorf("list rollouts: %w", err)
	}
	all := make([]*v1alpha1.Rollout, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	if e := rollout.FindEffectiveAgents(all); e != nil && e.UID != r.UID && rollout.IsNewer(e, r) {
		return e.Name, nil
	}
	return "", nil
}

// newAgentUnits returns the robots that a Rollout selects, by name, without what was seen of them.
func newAgentUnits(r *v1alpha1.Rollout, robots []v1alpha1.Robot, lastHeartbeat func(*v1alpha1.Robot) time.Time) []Unit {
	var out []Unit
	for i := range robots {
		robot := &robots[i]
		if !rollout.SelectsRobot(r, robot) {
			continue
		}
		u := Unit{
			Agent: newAgent(r, robot), Heartbeat: lastHeartbeat(robot),
			InContact: lifecycle.ParseRobotPhase(robot.Status.Phase) == lifecycle.RobotOnline,
		}
		u.Name, u.Labels = robot.Name, robotattr.TaskVisibleLabels(robot)
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Unit) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func newAgent(r *v1alpha1.Rollout, robot *v1alpha1.Robot) *Agent {
	a := &Agent{Robot: window.RobotFrom(robot), Obstacle: rollout.FindObstacle(r, robot), needsRevert: rollout.NeedsRevert(r, robot.Status.Agent)}
	if info := robot.Status.Agent; info != nil {
		a.Version, a.Update = info.Version, info.Update
	}
	a.HasSettled = a.Version == r.Spec.Target.Agent.Version && !a.isChanging()
	a.HadVersion = a.HasSettled && (a.Update == nil || a.Update.Rollout != string(r.UID))
	return a
}

// isChanging reports whether the agent acts by an order and has not ended.
func (a *Agent) isChanging() bool {
	return a.Update != nil && a.Update.State != v1alpha1.AgentUpdateSettled && a.Update.State != v1alpha1.AgentUpdateFailed
}
