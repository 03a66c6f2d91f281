package agent

import (
	"log/slog"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/agent/journal"
	"k8s4r.io/k8s4r/internal/agent/logship"
	"k8s4r.io/k8s4r/internal/agent/shims"
	"k8s4r.io/k8s4r/internal/driver"
	"k8s4r.io/k8s4r/internal/shim"
	"k8s4r.io/k8s4r/internal/wire"
)

// barren is a keeper that starts nothing.
type barren struct{}

func (barren) Start(shim.Spec, string) (*shims.Shim, error)  { return nil, driver.ErrNoDriver }
func (barren) Adopt(string) (*shims.Shim, shim.State, error) { return nil, shim.State{}, nil }
func (barren) Stop(*shims.Shim, string, time.Duration) error { return nil }
func (barren) Tell(*shims.Shim, wire.RobotFacts) error       { return nil }
func (barren) Rings() <-chan struct{}                        { return nil }
func (barren) News() []shims.News                            { return nil }

// unread sends no logs.
type unread struct{}

func (unread) Add(logship.Attempt, string) {}
func (unread) Ended(logship.Attempt)       {}

// FuzzReceive gives the agent two messages, and expects it to go on and to
// keep its journal in order.
func FuzzReceive(f *testing.F) {
	kinds := []wire.Kind{wire.KindDispatch, wire.KindState, wire.KindAck, wire.KindResponse}
	f.Add(uint8(0), []byte(`{"action":"create","attempt":1,"task":{"metadata":{"uid":"a"},"spec":{"driver":"exec"}}}`),
		uint8(0), []byte(`{"action":"delete","attempt":1,"task":{"metadata":{"uid":"a"}}}`))
	f.Add(uint8(2), []byte(`{"tasks":[{"uid":"a","attempt":1,"seq":1}]}`), uint8(1), []byte(`{"tasks":[],"epoch":1,"refs":[{"uid":"a"}]}`))
	f.Add(uint8(3), []byte(`{"success":true}`), uint8(3), []byte("\x00"))
	j, err := journal.Open(f.TempDir(), journal.Options{})
	must(f, err)
	log := slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, k1 uint8, m1 []byte, k2 uint8, m2 []byte) {
		a := &Agent{log: log, link: &link{responses: make(chan wire.Response, 1)}}
		a.listen()
		out := newOutbox(nil, time.Now)
		dir := t.TempDir()
		contact, err := openContact(dir)
		must(t, err)
		defer contact.file.Close()
		a.contact = contact
		a.runner = newRunner(Config{RobotID: robot, StateDir: dir}, j, barren{}, contact, unread{}, out, log, time.Now)
		a.receive(kinds[k1%4], m1, "")
		a.receive(kinds[k2%4], m2, "")
		for len(a.runner.inbox) > 0 {
			must(t, a.runner.round(t.Context(), []message{<-a.runner.inbox}))
		}
		for _, e := range j.Entries() {
			if !e.Ended() {
				t.Errorf("nothing runs, and the journal has %+v", e)
			}
		}
	})
}
