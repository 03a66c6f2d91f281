package selfupdate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/agent/slots"
)

// orderFixture is an agent that acts by orders.
type orderFixture struct {
	*fixture
	t         *testing.T
	orders    *Orders
	hold      error
	sinceBoot time.Duration
	changes   atomic.Int32
	downloads int
	onFetch   func()
	url       string
}

// newOrderFixture returns an agent of version v1 that earlier ones have left a report.
func newOrderFixture(t *testing.T, change func(*OrdersConfig)) *orderFixture {
	f := &orderFixture{fixture: newFixture(t), t: t, onFetch: func() {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.downloads++
		f.onFetch()
		http.ServeFile(w, r, f.program)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	f.config.Reads = slots.Formats{Journal: 2, Shim: 2, Local: 1}
	f.config.MayUpdate = func() error { return f.hold }
	f.restart(change)
	return f
}

// restart starts the next agent.
func (f *orderFixture) restart(change func(*OrdersConfig)) {
	c := OrdersConfig{
		Updates: New(f.config), Running: f.config.Running, Keep: f.config.Store.RecordReport, OnChange: func() { f.changes.Add(1) },
		SinceBoot: func() time.Duration { return f.sinceBoot }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if r := f.state().Report; r != nil {
		c.Report = &r.AgentUpdate
	}
	if change != nil {
		change(&c)
	}
	f.orders = NewOrders(c)
}

func (f *orderFixture) state() slots.State {
	f.t.Helper()
	s, _, err := f.config.Store.Load()
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *orderFixture) order() wire.AgentOrder {
	m := f.request.Manifest
	return wire.AgentOrder{Rollout: "r", Version: m.Version, Artifact: &wire.AgentArtifact{
		OS: m.OS, Arch: m.Arch, Source: f.url, Size: m.Size, SHA256: m.SHA256, Signature: m.Signature,
	}}
}

// deliver delivers an order, and executes what is to be executed.
func (f *orderFixture) deliver(o wire.AgentOrder) {
	f.t.Helper()
	if err := f.orders.Deliver(o); err != nil {
		f.t.Fatal(err)
	}
	f.orders.executeNext(f.t.Context())
}

func (f *orderFixture) expect(what, state, message string) {
	f.t.Helper()
	r := f.orders.Report()
	if r == nil || r.State != state || !strings.Contains(r.Message, message) || (r.Message == "") != (message == "") {
		f.t.Errorf("%s: the report is %+v, want %s %q", what, r, state, message)
	}
}

func TestOrders_ActsOnceForEachTry(t *testing.T) {
	f := newOrderFixture(t, nil)
	good, o := f.program, f.order()
	f.program += "missing"
	f.deliver(o)
	f.expect("a program that is missing", wire.AgentFailed, "fetch version v2")
	downloads := f.downloads
	f.deliver(o)
	f.restart(nil)
	f.deliver(o)
	if f.downloads != downloads || f.switched != 0 {
		t.Errorf("%d downloads after the same order, %d before", f.downloads, downloads)
	}
	f.expect("after a restart", wire.AgentFailed, "fetch version v2")

	f.program, o.Try = good, 1
	f.deliver(o)
	f.expect("the second try, before the switch", wire.AgentDownloading, "")
	if s := f.state(); f.switched != 1 || s.Phase != slots.Trying || s.Report.State != wire.AgentTrying || s.Report.Try != 1 || s.Report.Slot != slots.SlotA {
		t.Errorf("switched %d times, the state is %+v", f.switched, s)
	}
	f.restart(func(c *OrdersConfig) { c.IsOnTrial, c.Running = true, "v2" })
	f.expect("the version on trial", wire.AgentTrying, "")
	if f.deliver(wire.AgentOrder{Rollout: "r", Version: "v2", IsRevert: true}); f.orders.Report().IsRevert {
		t.Error("a version on trial acts by an order")
	}
}

func TestOrders_RefusesAndReportsWhy(t *testing.T) {
	for want, change := range map[string]func(*orderFixture, *wire.AgentOrder){
		"signature: it was not made": func(_ *orderFixture, o *wire.AgentOrder) { o.Version = "v3" },
		"source: must be an http":    func(f *orderFixture, o *wire.AgentOrder) { o.Artifact.Source = FileSource(f.program) },
		"artifact: the order has no": func(_ *orderFixture, o *wire.AgentOrder) { o.Artifact = nil },
		"os, arch:": func(f *orderFixture, o *wire.AgentOrder) {
			f.resign(func(m *agentupdate.Manifest) { m.Arch = "mips" })
			o.Artifact.Arch, o.Artifact.Signature = "mips", f.request.Manifest.Signature
		},
	} {
		f := newOrderFixture(t, nil)
		o := f.order()
		change(f, &o)
		f.deliver(o)
		f.expect(want, wire.AgentFailed, want)
		if f.switched != 0 || len(f.orders.Report().Message) > wire.MaxUpdateMessage {
			t.Errorf("%s: switched %d times, %+v", want, f.switched, f.orders.Report())
		}
	}
}

func TestOrders_WaitsWhileItMayNotBegin(t *testing.T) {
	f := newOrderFixture(t, nil)
	o := f.order()
	f.hold = errors.New("on hold")
	f.deliver(o)
	f.expect("held", wire.AgentWaiting, "on hold")
	changes := f.changes.Load()
	f.deliver(o)
	if f.downloads != 0 || f.changes.Load() != changes {
		t.Errorf("held: %d downloads, %d registrations", f.downloads, f.changes.Load()-changes)
	}
	if f.state().Report != nil {
		t.Error("the report that the robot waits survives a restart")
	}
	f.hold = nil
	f.onFetch = func() { f.hold = errors.New("on hold again") }
	f.deliver(o)
	f.expect("held during the download", wire.AgentWaiting, "on hold again")

	f.hold, o.WindowSeconds = nil, 60
	if err := f.orders.Deliver(o); err != nil {
		t.Fatal(err)
	}
	f.sinceBoot += time.Minute
	f.orders.executeNext(t.Context())
	f.expect("after the window", wire.AgentWaiting, "the maintenance window of 60s is over")
	f.deliver(o)
	if f.switched != 1 || f.downloads != 1 {
		t.Errorf("in the next window: switched %d times after %d downloads, %+v", f.switched, f.downloads, f.orders.Report())
	}
}

func TestOrders_WaitsForTheWindowAtTheSwitch(t *testing.T) {
	f := newOrderFixture(t, nil)
	o := f.order()
	o.WindowSeconds = 60
	f.onFetch = func() { f.sinceBoot += time.Hour }
	f.deliver(o)
	f.expect("a long download", wire.AgentWaiting, "is over")
	if f.switched != 0 || f.state().Phase != slots.Settled {
		t.Errorf("the agent is replaced outside of the window: %+v", f.state())
	}
}

func TestOrders_Revert(t *testing.T) {
	f := newOrderFixture(t, nil)
	f.deliver(f.order())
	if err := f.config.Store.Pass(time.Now()); err != nil {
		t.Fatal(err)
	}
	f.config.Running, f.config.Slot = "v2", slots.SlotA
	f.restart(nil)
	f.expect("the new version", wire.AgentSettled, "")

	revert := wire.AgentOrder{Rollout: "r", Version: "v2", IsRevert: true}
	f.hold = errors.New("on hold")
	f.deliver(revert)
	f.expect("held", wire.AgentWaiting, "on hold")
	f.hold = nil
	f.deliver(revert)
	if s := f.state(); f.switched != 2 || s.Active != slots.Installed || s.Phase != slots.Settled {
		t.Errorf("switched %d times, the state is %+v", f.switched, s)
	}
	f.config.Running, f.config.Slot = "v1", slots.Installed
	f.restart(nil)
	f.expect("the version before", wire.AgentSettled, "")
	if r := f.orders.Report(); !r.IsRevert || r.Version != "v2" {
		t.Errorf("the report is %+v", r)
	}
	f.deliver(revert)
	if f.switched != 2 {
		t.Error("the agent acts by the same order twice")
	}
}

func TestOrders_RevertsOnlyWhatTheRolloutHasInstalled(t *testing.T) {
	f := newOrderFixture(t, nil)
	f.deliver(wire.AgentOrder{Rollout: "r", Version: "v1", IsRevert: true})
	f.expect("the installed version", wire.AgentFailed, slots.ErrNotOrdered.Error()[:40])
	if f.switched != 0 {
		t.Error("the agent is replaced")
	}
}

// TestOrders_RevertEndsADownload orders the revert while the program is fetched.
func TestOrders_RevertEndsADownload(t *testing.T) {
	f := newOrderFixture(t, nil)
	f.onFetch = func() {
		if err := f.orders.Deliver(wire.AgentOrder{Rollout: "r", Version: "v2", IsRevert: true}); err != nil {
			t.Error(err)
		}
	}
	f.deliver(f.order())
	f.orders.executeNext(t.Context())
	f.expect("after the download", wire.AgentSettled, "")
	if f.switched != 0 || !f.orders.Report().IsRevert || f.state().Phase != slots.Settled {
		t.Errorf("switched %d times, %+v", f.switched, f.orders.Report())
	}
}

func TestOrders_WaitsForALocalUpdate(t *testing.T) {
	f := newOrderFixture(t, nil)
	u := New(f.config)
	f.restart(func(c *OrdersConfig) { c.Updates = u })
	u.busy.Lock()
	f.deliver(f.order())
	f.expect("during another update", wire.AgentWaiting, ErrBusy.Error())
}

func TestOrders_DropsWhatNoServerSends(t *testing.T) {
	f := newOrderFixture(t, nil)
	for name, change := range map[string]func(*wire.AgentOrder){
		"no rollout":      func(o *wire.AgentOrder) { o.Rollout = "" },
		"a long rollout":  func(o *wire.AgentOrder) { o.Rollout = strings.Repeat("x", 65) },
		"a negative try":  func(o *wire.AgentOrder) { o.Try = -1 },
		"a large try":     func(o *wire.AgentOrder) { o.Try = wire.MaxUpdateTry + 1 },
		"a bad version":   func(o *wire.AgentOrder) { o.Version = "v2\x1b[2J" },
		"no version":      func(o *wire.AgentOrder) { o.Version = "" },
		"negative window": func(o *wire.AgentOrder) { o.WindowSeconds = -1 },
		"endless window":  func(o *wire.AgentOrder) { o.WindowSeconds = 1 << 62 },
	} {
		o := f.order()
		change(&o)
		if err := f.orders.Deliver(o); !errors.Is(err, errLimits) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOrders_ReportsOneLine(t *testing.T) {
	f := newOrderFixture(t, func(c *OrdersConfig) { c.Updates = failing{errors.New("a\x1b[2J\nb")} })
	f.deliver(f.order())
	if m := f.orders.Report().Message; m != "a[2J; b" {
		t.Errorf("the message is %q", m)
	}
}

// failing refuses all updates with an error.
type failing struct{ error }

func (failing) CheckMoment(func() error) error                                   { return nil }
func (f failing) Request(context.Context, Request) (func(), error)               { return nil, f.error }
func (f failing) Revert(wire.AgentUpdate, string) (switchOver func(), err error) { return nil, f.error }

func TestOrders_RunExecutesUntilItsContextEnds(t *testing.T) {
	f := newOrderFixture(t, nil)
	f.request.Manifest.Signature = ""
	synctest.Test(t, func(t *testing.T) {
		f.restart(nil)
		ctx, cancel := context.WithCancel(t.Context())
		go f.orders.Run(ctx)
		if err := f.orders.Deliver(f.order()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.expect("a manifest without a signature", wire.AgentFailed, "signature:")
		cancel()
	})
	if _, err := os.Stat(f.config.Store.Program(slots.SlotA)); err == nil {
		t.Error("the program was fetched")
	}
}
