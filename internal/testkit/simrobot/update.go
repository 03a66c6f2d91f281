package simrobot

import "k8s4r.io/k8s4r/internal/protocol/wire"

// agent is the program that a robot pretends to be.
type agent struct {
	version string
	update  *wire.AgentUpdate // as last reported
	orders  []wire.AgentOrder // as received, with repetitions
}

// handleOrder acts by an order to update the agent, as Config.OnAgentOrder says, and registers the result.
func (r *Robot) handleOrder(o wire.AgentOrder) {
	r.mu.Lock()
	r.agent.orders = append(r.agent.orders, o)
	r.mu.Unlock()
	if r.cfg.OnAgentOrder == nil {
		return
	}
	state, version := r.cfg.OnAgentOrder(o)
	if state == "" {
		return
	}
	r.ReportUpdate(wire.AgentUpdate{Rollout: o.Rollout, Try: o.Try, IsRevert: o.IsRevert, Version: o.Version, State: state}, version)
}

// ReportUpdate registers again with what the agent reports about an order, and with another version unless it is
// empty.
func (r *Robot) ReportUpdate(u wire.AgentUpdate, version string) {
	r.mu.Lock()
	r.agent.update = &u
	if version != "" {
		r.agent.version = version
	}
	r.mu.Unlock()
	r.sendRegister()
}

// AgentOrders returns the orders to update the agent that were received, with repetitions.
func (r *Robot) AgentOrders() []wire.AgentOrder {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]wire.AgentOrder(nil), r.agent.orders...)
}

// addAgent adds to a registration what the robot reports about its agent.
func (r *Robot) addAgent(to *wire.Register) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to.AgentVersion, to.AgentUpdate, to.UpdatesItself = r.agent.version, r.agent.update, r.cfg.UpdatesItself
}
