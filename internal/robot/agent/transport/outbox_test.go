package transport

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// sentReports records what an outbox sends, and when.
type sentReports struct {
	began time.Time
	at    []time.Duration
	sent  []wire.Status
	err   error
}

func (p *sentReports) send(_ context.Context, s wire.Status) error {
	p.at, p.sent = append(p.at, time.Since(p.began)), append(p.sent, s)
	return p.err
}

func runOutbox(t *testing.T) (*Outbox, *sentReports) {
	p := &sentReports{began: time.Now()}
	o := NewOutbox(p.send, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go o.Run(ctx)
	o.SetConnected(true)
	return o, p
}

func reportOf(uid string, seq uint64) wire.Status {
	s := wire.Status{TaskUID: uid, Attempt: 1, Seq: seq, State: wire.ReportRunning}
	if seq > 1 {
		s.State = wire.ReportCompleted
	}
	return s
}

func seconds(n ...int) (all []time.Duration) {
	for _, s := range n {
		all = append(all, time.Duration(s)*time.Second)
	}
	return all
}

func TestOutbox(t *testing.T) {
	test := func(name string, f func(t *testing.T, o *Outbox, p *sentReports)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, p := runOutbox(t)
				f(t, o, p)
			})
		})
	}
	test("a report whose acknowledgment takes long is sent once", func(t *testing.T, o *Outbox, p *sentReports) {
		for i := range uint64(10) {
			o.Put(reportOf("a", 2+i))
			time.Sleep(29 * time.Second)
			synctest.Wait()
			o.Acknowledge(wire.TaskAck{UID: "a", Attempt: 1, Seq: 2 + i})
		}
		if len(p.sent) != 10 {
			t.Errorf("10 reports were sent at %v", p.at)
		}
	})
	test("a report is repeated every 30 s until it is acknowledged", func(t *testing.T, o *Outbox, p *sentReports) {
		o.Put(reportOf("a", 2))
		time.Sleep(100 * time.Second)
		synctest.Wait()
		o.Acknowledge(wire.TaskAck{UID: "a", Attempt: 1, Seq: 2})
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := seconds(0, 30, 60, 90); !slices.Equal(p.at, want) {
			t.Errorf("sent at %v, want %v", p.at, want)
		}
	})
	test("an ack of something older or of something else does not count", func(t *testing.T, o *Outbox, p *sentReports) {
		o.Put(reportOf("a", 2))
		for _, ack := range []wire.TaskAck{{UID: "a", Attempt: 1, Seq: 1}, {UID: "a", Attempt: 2, Seq: 2}, {UID: "b", Attempt: 1, Seq: 2}} {
			o.Acknowledge(ack)
		}
		time.Sleep(resendPause)
		synctest.Wait()
		if len(p.sent) != 2 {
			t.Errorf("sent %d times, want it repeated", len(p.sent))
		}
	})
	test("the end overtakes a running report, and not the other way about", func(t *testing.T, o *Outbox, p *sentReports) {
		o.Put(reportOf("a", 1))
		o.Put(reportOf("a", 2))
		o.Put(reportOf("a", 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, s := range p.sent {
			if s.Seq != 2 {
				t.Errorf("sent %+v after the end was known", s)
			}
		}
	})
	test("after a reconnect all is due at once, in the order it was put in", func(t *testing.T, o *Outbox, p *sentReports) {
		o.Put(reportOf("a", 2))
		o.Put(reportOf("b", 2))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		o.SetConnected(false)
		n := len(p.sent)
		time.Sleep(time.Hour)
		synctest.Wait()
		o.Put(reportOf("c", 1))
		synctest.Wait()
		if len(p.sent) != n {
			t.Error("sent without a connection")
		}
		o.SetConnected(true)
		synctest.Wait()
		var order []string
		for _, s := range p.sent[n:] {
			order = append(order, s.TaskUID)
		}
		if !slices.Equal(order, []string{"a", "b", "c"}) {
			t.Errorf("sent %v, want a, b, c", order)
		}
	})
	test("after the server has connected again all is due at once", func(t *testing.T, o *Outbox, p *sentReports) {
		o.SetServerConnection("first-1")
		o.Put(reportOf("a", 2))
		o.Put(reportOf("b", 2))
		synctest.Wait()
		for _, id := range []string{"first-1", "", "first-1"} { // "": of an older server
			o.SetServerConnection(id)
			synctest.Wait()
			if len(p.sent) != 2 {
				t.Fatalf("connection %q: sent at %v, although the server is connected since before", id, p.at)
			}
		}
		o.SetServerConnection("second-1")
		synctest.Wait()
		if want := seconds(0, 0, 0, 0); !slices.Equal(p.at, want) {
			t.Errorf("sent at %v, want %v", p.at, want)
		}
	})
	test("a connection that fails in the middle loses nothing", func(t *testing.T, o *Outbox, p *sentReports) {
		p.err = errors.New("broken pipe")
		o.Put(reportOf("a", 2))
		o.Put(reportOf("b", 2))
		synctest.Wait()
		o.SetConnected(false)
		p.err, p.sent = nil, nil
		o.SetConnected(true)
		synctest.Wait()
		if len(p.sent) != 2 {
			t.Errorf("sent %+v, want both reports", p.sent)
		}
	})
	test("it is drained when the last report is acknowledged", func(t *testing.T, o *Outbox, _ *sentReports) {
		o.Put(reportOf("a", 2))
		drained := o.Drained()
		synctest.Wait()
		select {
		case <-drained:
			t.Error("drained while a report waits")
		default:
		}
		o.Acknowledge(wire.TaskAck{UID: "a", Attempt: 1, Seq: 9})
		<-drained
		<-o.Drained()
	})
}
