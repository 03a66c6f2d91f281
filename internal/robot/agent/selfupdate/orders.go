package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

// updater replaces the agent (Updater).
type updater interface {
	CheckMoment(mayBegin func() error) error
	Request(ctx context.Context, r Request) (switchOver func(), err error)
	Revert(report wire.AgentUpdate, by string) (switchOver func(), err error)
}

// OrdersConfig configures Orders.
type OrdersConfig struct {
	Updates updater
	// Running is the version of this agent.
	Running string
	// IsOnTrial is set if this agent has not passed its self-test. It ignores orders, which the server repeats.
	IsOnTrial bool
	// Report is about the last order that an earlier agent has acted by. If nil, there is none.
	Report *wire.AgentUpdate
	// Keep makes a report survive restarts of the agent.
	Keep func(wire.AgentUpdate) error
	// OnChange is called when the report must be sent. It must not block.
	OnChange func()
	// SinceBoot is a clock that is never set, for maintenance windows. Now is the robot's clock.
	SinceBoot func() time.Duration
	Now       func() time.Time
	Log       *slog.Logger
}

// Orders acts by the orders of Rollouts of agents, once for each Rollout, try and direction.
type Orders struct {
	config OrdersConfig
	wake   chan struct{} // readable when an order was received

	mu      sync.Mutex         // guards the fields below
	report  *wire.AgentUpdate  // about the last order; nil: there was none
	pending *receivedOrder     // the next order to execute
	active  *receivedOrder     // the order that Run executes
	cancel  context.CancelFunc // of active
}

// receivedOrder is an order with when it was received.
type receivedOrder struct {
	wire.AgentOrder
	at time.Duration // since boot
}

// isSame reports whether an agent acts only once by both orders. A nil order is never the same.
func (r *receivedOrder) isSame(o wire.AgentOrder) bool {
	return r != nil && r.Rollout == o.Rollout && r.IsRevert == o.IsRevert && r.Try == o.Try
}

// NewOrders returns Orders. Run must follow.
func NewOrders(c OrdersConfig) *Orders {
	return &Orders{config: c, wake: make(chan struct{}, 1), report: c.Report}
}

// Report returns what the agent reports about the last order. If nil, there was none.
func (o *Orders) Report() *wire.AgentUpdate {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.report == nil {
		return nil
	}
	r := *o.report
	return &r
}

// errLimits drops an order that no server sends.
var errLimits = errors.New("an order to update the agent exceeds the limits, or its version is no version")

// Deliver takes over an order. It replaces one that is executed or waits, unless the agent acts by it already.
func (o *Orders) Deliver(order wire.AgentOrder) error {
	if !order.IsWithinLimits() || agentupdate.ValidateVersion(order.Version) != nil {
		return errLimits
	}
	if o.config.IsOnTrial {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.active.isSame(order) && o.pending == nil, o.pending.isSame(order):
		return nil
	case isAnswered(o.report, order):
		o.config.OnChange() // the server has not received the report
		return nil
	}
	o.pending = &receivedOrder{order, o.config.SinceBoot()}
	if o.cancel != nil {
		o.cancel()
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

// isAnswered reports whether the agent has acted by an order, or by a later try of it.
func isAnswered(r *wire.AgentUpdate, o wire.AgentOrder) bool {
	return r != nil && r.Rollout == o.Rollout && r.IsRevert == o.IsRevert && r.Try >= o.Try && r.State != wire.AgentWaiting
}

// Run executes orders until ctx ends. The server repeats an order that ctx interrupts.
func (o *Orders) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		o.executeNext(ctx)
	}
}

func (o *Orders) executeNext(ctx context.Context) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	o.mu.Lock()
	order := o.pending
	if order != nil {
		o.active, o.pending, o.cancel = order, nil, cancel
	}
	o.mu.Unlock()
	if order == nil {
		return // the one that has replaced it was executed
	}
	end := o.execute(work, order)
	o.recordEnd(work, order, end)
	if end.switchOver != nil {
		end.switchOver()
	}
}

// orderEnd is what follows from an order.
type orderEnd struct {
	// state and message of the report. If state is empty, the report stays.
	state, message string
	// switchOver starts another version, which reports. If nil, this agent goes on.
	switchOver func()
}

// endOf returns the end of an order whose request has returned.
func endOf(switchOver func(), err error) orderEnd {
	var moment *MomentError
	switch {
	case err == nil:
		return orderEnd{switchOver: switchOver}
	case errors.Is(err, ErrBusy), errors.Is(err, slots.ErrOnTrial), errors.As(err, &moment):
		return orderEnd{state: wire.AgentWaiting, message: err.Error()}
	}
	return orderEnd{state: wire.AgentFailed, message: err.Error()}
}

func (o *Orders) execute(ctx context.Context, order *receivedOrder) orderEnd {
	by := "Rollout " + order.Rollout
	switch {
	case order.IsRevert && order.Version != o.config.Running:
		return orderEnd{state: wire.AgentSettled}
	case order.IsRevert:
		return endOf(o.config.Updates.Revert(o.newReport(order, wire.AgentSettled, ""), by))
	case order.Version == o.config.Running:
		o.config.OnChange() // the server has not received the version
		return orderEnd{}
	}
	r, err := order.request(by)
	if err != nil {
		return endOf(nil, err)
	}
	r.MayBegin = func() error { return order.checkWindow(o.config.SinceBoot()) }
	if err := o.config.Updates.CheckMoment(r.MayBegin); err != nil {
		return endOf(nil, err)
	}
	o.setReport(o.newReport(order, wire.AgentDownloading, ""))
	trying := o.newReport(order, wire.AgentTrying, "")
	r.Report = &trying
	return endOf(o.config.Updates.Request(ctx, r))
}

// request returns the request of an order. It accepts no files of the robot, which the server must not name.
func (r *receivedOrder) request(by string) (Request, error) {
	a := r.Artifact
	if a == nil {
		return Request{}, errors.New("artifact: the order has no program")
	}
	if source, err := url.Parse(a.Source); err != nil || source.Scheme != "http" && source.Scheme != "https" {
		return Request{}, errors.New("source: must be an http or https URL")
	}
	m := agentupdate.Manifest{Version: r.Version, OS: a.OS, Arch: a.Arch, Size: a.Size, SHA256: a.SHA256, Signature: a.Signature}
	return Request{Manifest: m, Source: a.Source, By: by}, nil
}

// checkWindow returns an error if the maintenance window of the order is over.
func (r *receivedOrder) checkWindow(now time.Duration) error {
	if r.WindowSeconds > 0 && (now-r.at)/time.Second >= time.Duration(r.WindowSeconds) {
		return fmt.Errorf("the maintenance window of %ds is over; the update goes on in the next one", r.WindowSeconds)
	}
	return nil
}

func (o *Orders) newReport(order *receivedOrder, state, message string) wire.AgentUpdate {
	return wire.AgentUpdate{
		Rollout: order.Rollout, Try: order.Try, IsRevert: order.IsRevert, Version: order.Version,
		State: state, Message: wire.TruncateText(printable(message), wire.MaxUpdateMessage), At: o.config.Now().UTC(),
	}
}

// printable returns a text in one line without control characters, which a file server could send to a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ReplaceAll(text, "\n", "; "))
}

// setReport replaces the report, and sends it if more than its time has changed.
func (o *Orders) setReport(r wire.AgentUpdate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.report != nil {
		before := *o.report
		if before.At = r.At; before == r {
			return
		}
	}
	o.report = &r
	o.config.OnChange()
}

// recordEnd reports the end of an order that no other one has replaced.
func (o *Orders) recordEnd(ctx context.Context, order *receivedOrder, end orderEnd) {
	o.mu.Lock()
	o.cancel = nil
	if end.switchOver == nil {
		o.active = nil
	}
	o.mu.Unlock()
	if end.state == "" || ctx.Err() != nil {
		return
	}
	r := o.newReport(order, end.state, end.message)
	if r.State != wire.AgentWaiting {
		if err := o.config.Keep(r); err != nil {
			o.config.Log.Warn("the report about an update of the agent would not survive a restart", "error", err)
		}
	}
	o.config.Log.Info("an order to update the agent has ended", "rollout", r.Rollout, "version", r.Version, "isRevert", r.IsRevert, "state", r.State, "message", r.Message)
	o.setReport(r)
}
