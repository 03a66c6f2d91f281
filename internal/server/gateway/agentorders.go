package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/rollout"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// agentOrderRepeat is the time between two orders to the same agent while it does not report about them.
	agentOrderRepeat = wire.MaxRepeatInterval
	// agentOrderGap is the time between two orders to the same agent if it has registered without a report about
	// them: it may not have received the first one, or register in a loop.
	agentOrderGap = 10 * time.Second
	// agentOrdersPerSecond bounds the orders of all robots together: each is followed by a download, and by two or
	// more registrations.
	agentOrdersPerSecond = 50
)

// agentRollouts holds the Rollouts of agents that have not been superseded, by namespace.
type agentRollouts struct {
	mu          sync.Mutex // guards byNamespace
	byNamespace map[string]map[types.UID]*robotv1.Rollout
}

func newAgentRollouts() *agentRollouts {
	return &agentRollouts{byNamespace: map[string]map[types.UID]*robotv1.Rollout{}}
}

// effective returns the Rollout that decides for the agents of a namespace, or nil.
func (a *agentRollouts) effective(namespace string) *robotv1.Rollout {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.effectiveLocked(namespace)
}

func (a *agentRollouts) effectiveLocked(namespace string) *robotv1.Rollout {
	return rollout.FindEffectiveAgents(slices.Collect(maps.Values(a.byNamespace[namespace])))
}

// store stores a Rollout, and reports whether other orders may follow from that.
func (a *agentRollouts) store(r *robotv1.Rollout) (changed bool) {
	if !r.Spec.Target.IsAgent() {
		return false
	}
	if r.Status.Phase == robotv1.RolloutSuperseded {
		return a.remove(r)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.effectiveLocked(r.Namespace)
	if a.byNamespace[r.Namespace] == nil {
		a.byNamespace[r.Namespace] = map[types.UID]*robotv1.Rollout{}
	}
	a.byNamespace[r.Namespace][r.UID] = r
	return !rollout.HasSameDecisions(before, a.effectiveLocked(r.Namespace))
}

// remove removes a Rollout, and reports whether other orders may follow from that.
func (a *agentRollouts) remove(r *robotv1.Rollout) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.effectiveLocked(r.Namespace)
	delete(a.byNamespace[r.Namespace], r.UID)
	if len(a.byNamespace[r.Namespace]) == 0 {
		delete(a.byNamespace, r.Namespace)
	}
	return !rollout.HasSameDecisions(before, a.effectiveLocked(r.Namespace))
}

// agentOrders sends agents the orders of Rollouts.
type agentOrders struct {
	rollouts *agentRollouts
	limit    *rate.Limiter
	windows  *maintenanceWindows
}

func newAgentOrders() agentOrders {
	return agentOrders{
		rollouts: newAgentRollouts(),
		limit:    rate.NewLimiter(agentOrdersPerSecond, agentOrdersPerSecond),
		windows:  newMaintenanceWindows(),
	}
}

// sentAgentOrder is the order that was sent to a robot last.
type sentAgentOrder struct {
	rollout  types.UID
	try      int32
	isRevert bool
	at       time.Time
	// isMissing reports whether the robot has registered since, without a report about the Rollout.
	isMissing bool
}

// isRecent reports whether this is the order, and it is too early to repeat it.
func (s sentAgentOrder) isRecent(o *rollout.AgentOrder, now time.Time) bool {
	interval := agentOrderRepeat
	if s.isMissing {
		interval = agentOrderGap
	}
	return s.rollout == o.Rollout && s.try == o.Try && s.isRevert == o.IsRevert && now.Sub(s.at) < interval
}

func (g *Gateway) handleRolloutUpdate(r *robotv1.Rollout) {
	if g.orders.rollouts.store(r) {
		g.enqueueAgents(r.Namespace)
	}
}

func (g *Gateway) handleRolloutDelete(r *robotv1.Rollout) {
	if r.Spec.Target.IsAgent() && g.orders.rollouts.remove(r) {
		g.enqueueAgents(r.Namespace)
	}
}

// enqueueAgents enqueues the robots of a namespace that are due an order.
func (g *Gateway) enqueueAgents(namespace string) {
	for _, id := range g.objects.robotIDs() {
		if r := g.objects.robot(id); r != nil && r.Namespace == namespace {
			g.enqueueAgent(id)
		}
	}
}

// enqueueAgent enqueues a robot that is due an order.
func (g *Gateway) enqueueAgent(id string) {
	if g.dueAgentOrder(id) != nil {
		g.orderQueue.Add(id)
	}
}

// dueAgentOrder returns the order that is to be sent to a robot now, or nil. A robot that this server has received
// no message of gets none, because the connection may not be up.
func (g *Gateway) dueAgentOrder(id string) *rollout.AgentOrder {
	r := g.objects.robot(id)
	if r == nil {
		return nil
	}
	effective := g.orders.rollouts.effective(r.Namespace)
	if effective == nil {
		return nil
	}
	w := g.robots.stateOf(id)
	if w.lastSeen.IsZero() || w.disconnectReason != "" || r.IsRevoked() || lifecycle.ParseRobotPhase(r.Status.Phase) != lifecycle.RobotOnline {
		return nil
	}
	o := rollout.FindAgentOrder(effective, withReportedAgent(r, w))
	if o == nil || w.sentOrder.isRecent(o, g.now()) {
		return nil
	}
	if _, isOpen := g.windowOf(r, effective, o); !isOpen {
		return nil
	}
	return o
}

// windowOf returns for how long an agent may begin to act by an order, and whether it may. Zero and true mean that no
// window limits it. A revert repairs the robot, so windows do not limit it.
func (g *Gateway) windowOf(r *robotv1.Robot, effective *robotv1.Rollout, o *rollout.AgentOrder) (seconds int64, isOpen bool) {
	if o.IsRevert || effective.Spec.IgnoreWindows {
		return 0, true
	}
	now := g.now()
	s := g.orders.windows.stateOf(r, now)
	if !s.IsOpen || s.ClosesAt.IsZero() {
		return 0, s.IsOpen
	}
	seconds = int64(s.ClosesAt.Sub(now) / time.Second)
	return seconds, seconds > 0
}

// withReportedAgent returns a Robot with what its agent has registered, which may not be written yet.
func withReportedAgent(r *robotv1.Robot, w robotState) *robotv1.Robot {
	if w.registered.IsZero() {
		return r
	}
	next := *r
	next.Status.Agent = agentInfo(w)
	if w.device != nil {
		next.Status.DeviceInfo = deviceStatus(w.device)
	}
	return &next
}

// sendAgentOrder sends a robot its order, if one is due.
func (g *Gateway) sendAgentOrder(ctx context.Context, id string) error {
	if g.dueAgentOrder(id) == nil {
		return nil
	}
	if err := g.orders.limit.Wait(ctx); err != nil {
		return fmt.Errorf("wait to send an order to agent %s: %w", id, err)
	}
	r, o := g.objects.robot(id), g.dueAgentOrder(id)
	if o == nil || r == nil {
		return nil
	}
	m, isOpen := g.newAgentOrder(r, o)
	if !isOpen {
		return nil // the window has closed meanwhile
	}
	a := &wire.Response{Success: true, Message: messageAccepted, RobotID: id, StoresRuns: g.storesRuns(), UnlockMaintenance: unlockOf(r), AgentOrder: m}
	if g.sendExpiring(id, wire.KindResponse, a, expiryWithin(wire.KindResponse, m.WindowSeconds)) {
		g.robots.updateState(id, true, func(w *robotState) {
			w.sentOrder = sentAgentOrder{rollout: o.Rollout, try: o.Try, isRevert: o.IsRevert, at: g.now()}
		})
		g.log.Info("ordered an agent to change its version", "robot", id, "rollout", o.Rollout, "version", o.Version, "isRevert", o.IsRevert, "try", o.Try)
	}
	return nil
}

// newAgentOrder returns the message of an order, and whether the agent may act by it now.
func (g *Gateway) newAgentOrder(r *robotv1.Robot, o *rollout.AgentOrder) (_ *wire.AgentOrder, isOpen bool) {
	m := &wire.AgentOrder{Rollout: string(o.Rollout), Try: o.Try, IsRevert: o.IsRevert, Version: o.Version}
	if a := o.Artifact; a != nil {
		m.Artifact = &wire.AgentArtifact{OS: a.OS, Arch: a.Arch, Source: a.Source, Size: a.Size, SHA256: a.SHA256, Signature: a.Signature}
	}
	effective := g.orders.rollouts.effective(r.Namespace)
	if effective == nil {
		return m, false
	}
	m.WindowSeconds, isOpen = g.windowOf(r, effective, o)
	return m, isOpen
}

// agentUpdateStatus converts what an agent reports about an order. Update is within limits.
func agentUpdateStatus(u *wire.AgentUpdate) *robotv1.AgentUpdate {
	if u == nil {
		return nil
	}
	return &robotv1.AgentUpdate{
		Rollout: u.Rollout, Try: u.Try, IsRevert: u.IsRevert, Version: u.Version, State: u.State, Message: u.Message, At: toSeconds(&u.At),
	}
}
