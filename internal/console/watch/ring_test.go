package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/console/row"
)

// numbered returns an event that contains its number.
func numbered(seq uint64) Event {
	return Event{Type: Changed, Kind: row.Tasks, Name: fmt.Sprint(seq), Seq: seq, Row: &row.Row{Name: fmt.Sprint(seq)}}
}

func publish(t interface{ Fatal(...any) }, r *Ring, from, to uint64) {
	for seq := from; seq <= to; seq++ {
		if err := r.Publish(numbered(seq)); err != nil {
			t.Fatal(err)
		}
	}
}

// follower is a reader in a property test, with the events that it received.
type follower struct {
	reader   *Reader
	last     uint64 // seq of the last event, or of the start
	resync   bool   // a Resync must be next, because the ring was replaced
	received int
}

// checkNext checks the next event of a reader. The ring was created after the event with seq start.
func (f *follower) checkNext(t *rapid.T, e *Event, start, newest uint64) {
	switch {
	case e.Type == Resync:
		f.resync, f.last = false, max(e.Seq, start)
		if e.Seq > newest {
			t.Fatalf("a resync to %d of %d", e.Seq, newest)
		}
	case f.resync:
		t.Fatalf("%d instead of a resync", e.Seq)
	case e.Seq != f.last+1:
		t.Fatalf("%d came after %d, without a resync in between", e.Seq, f.last)
	default:
		f.last = e.Seq
	}
	f.received++
	if f.reader.Position() != e.ID {
		t.Fatalf("position %s after event %s", f.reader.Position(), e.ID)
	}
}

// In any order of writing, reading, stopping, resuming and restarting, readers receive all events
// in order, or a Resync if some are missing.
func TestRing_DeliversInOrderOrResyncs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Events: rapid.IntRange(1, 12).Draw(t, "events"), Bytes: rapid.IntRange(1, 12*(perEvent+200)).Draw(t, "bytes")}
		r, instances := NewRing("0", limits), 1
		start, newest := uint64(100), uint64(100)
		all := []*follower{{reader: r.Since(""), last: newest}}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				n := uint64(rapid.IntRange(1, 20).Draw(t, "n"))
				publish(t, r, newest+1, newest+n)
				newest += n
			},
			"join": func(*rapid.T) { all = append(all, &follower{reader: r.Since(""), last: newest}) },
			"read": func(t *rapid.T) {
				f := all[rapid.IntRange(0, len(all)-1).Draw(t, "reader")]
				for range rapid.IntRange(1, 30).Draw(t, "n") {
					if e := f.reader.Poll(); e != nil {
						f.checkNext(t, e, start, newest)
					}
				}
			},
			"resume": func(t *rapid.T) {
				f := all[rapid.IntRange(0, len(all)-1).Draw(t, "reader")]
				f.reader = r.Since(f.reader.Position())
			},
			"restart": func(*rapid.T) {
				r, start = NewRing(fmt.Sprint(instances), limits), newest
				instances++
				for _, f := range all {
					f.reader, f.resync = r.Since(f.reader.Position()), true
				}
			},
			"": func(t *rapid.T) {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.held > 1 && (r.held > limits.Events || r.bytes > limits.Bytes) {
					t.Fatalf("%d events and %d bytes are held, %+v are allowed", r.held, r.bytes, limits)
				}
			},
		})
		for _, f := range all {
			for e := f.reader.Poll(); e != nil; e = f.reader.Poll() {
				f.checkNext(t, e, start, newest)
			}
			if f.last != newest {
				t.Fatalf("a reader received events up to %d of %d", f.last, newest)
			}
		}
	})
}

// A reader of another instance gets a Resync at once, and then all events that follow it. Until it
// has received the Resync, its position stays the one of the other instance.
func TestRing_ResyncsReaderOfOtherInstance(t *testing.T) {
	before, after := NewRing("a", Limits{}), NewRing("b", Limits{})
	publish(t, before, 101, 103)
	publish(t, after, 102, 103) // the numbers of both instances overlap
	reader := before.Since("")
	publish(t, before, 104, 104)
	if e := reader.Poll(); e.ID != "a:4" || reader.Position() != e.ID {
		t.Fatalf("event %s, position %s", e.ID, reader.Position())
	}
	for _, last := range []string{reader.Position(), "a:0", "a:1"} {
		resumed := after.Since(last)
		publish(t, after, after.newest.event.Seq+1, after.newest.event.Seq+1)
		if resumed.Position() != last {
			t.Errorf("since %s: position %s before the resync was received", last, resumed.Position())
		}
		next := after.newest.event.Seq
		if e := resumed.Poll(); e.Type != Resync || e.Seq != next-1 || resumed.Position() != e.ID {
			t.Errorf("since %s: first is %+v, want a resync", last, e)
		}
		publish(t, after, next+1, next+1)
		for _, seq := range []uint64{next, next + 1} {
			if e := resumed.Poll(); e.Type != Changed || e.Seq != seq {
				t.Errorf("since %s: %+v after the resync, want %d", last, e, seq)
			}
		}
		if e := resumed.Poll(); e != nil {
			t.Errorf("since %s: %+v after the last event", last, e)
		}
	}
}

func TestRingSince_FindsPosition(t *testing.T) {
	r := NewRing("b", Limits{Events: 5})
	check := func(name, id string, want ...uint64) {
		t.Helper()
		d := r.Since(id)
		var got []uint64
		for e := d.Poll(); e != nil; e = d.Poll() {
			if e.Type == Resync {
				got = append(got, 0)
				continue
			}
			got = append(got, e.Seq)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: events since %s are %v, want %v (0 is a resync)", name, id, got, want)
		}
	}
	check("the start of the empty ring", "b:0")
	check("another instance than the empty ring", "a:0", 0)
	publish(t, r, 1001, 1003)
	check("an event", "b:1", 1002, 1003)
	check("the start", "b:0", 1001, 1002, 1003)
	check("the last event", "b:3")
	check("an event after the last", "b:9", 0)
	check("no id", "", []uint64{}...)
	for _, id := range []string{"nonsense", "b", "b:", "b:x", "1003", ":", "::", "b:3:4", "b:-1", ":3", "bb:3", "B:3"} {
		check("an invalid id", id, 0)
	}
	publish(t, r, 1004, 1009)
	check("an event whose successor was evicted", "b:3", 0)
	check("the last evicted event", "b:4", 1005, 1006, 1007, 1008, 1009)
	check("another instance", "a:4", 0)
}

// Waiting readers are woken and receive all events. A reader that never reads does not delay
// others or retain memory, and readers need no goroutine of the ring.
func TestRing_WakesWaitingReaders(t *testing.T) {
	const readers, events = 50, 2000
	r := NewRing("a", Limits{Events: events})
	before := runtime.NumGoroutine()
	slow := r.Since("")
	var wg sync.WaitGroup
	for range readers {
		d := r.Since("")
		wg.Go(func() {
			for want := uint64(1); want <= events; want++ {
				if e, err := d.Next(t.Context()); err != nil || e.Seq != want {
					t.Errorf("want %d, got %+v, %v", want, e, err)
					return
				}
			}
		})
	}
	publish(t, r, 1, events)
	if n := runtime.NumGoroutine() - before; n > readers {
		t.Errorf("%d goroutines for %d readers", n, readers)
	}
	wg.Wait()
	publish(t, r, events+1, 3*events)
	r.pingPong(t, 3*events)
	if e := slow.Poll(); e.Type != Resync || e.Seq != 3*events+rounds {
		t.Errorf("the slow reader received %+v", e)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := slow.Next(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that is over: %v", err)
	}
}

const rounds = 3000

// pingPong publishes each event only after the previous one was read, so that a reader that
// misses a wake-up waits forever.
func (r *Ring) pingPong(t *testing.T, from uint64) {
	t.Helper()
	read, d := make(chan uint64), r.Since("")
	go func() {
		defer close(read)
		for range rounds {
			e, err := d.Next(t.Context())
			if err != nil {
				return
			}
			read <- e.Seq
		}
	}()
	for seq := from + 1; seq <= from+rounds; seq++ {
		publish(t, r, seq, seq)
		select {
		case got := <-read:
			if got != seq {
				t.Fatalf("%d is read, %d was published", got, seq)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no reader is woken by %d", seq)
		}
	}
}

func TestFilterMatch_SelectsEvents(t *testing.T) {
	e := &Event{Type: Changed, Kind: row.Tasks, Namespace: "n", Name: "t", Row: &row.Row{Job: "j", Flow: "f"}}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Namespace: "n", Kind: row.Tasks, Name: "t", Job: "j", Flow: "f"}, true},
		{Filter{Namespace: "o"}, false},
		{Filter{Kind: row.Jobs}, false},
		{Filter{Name: "u"}, false},
		{Filter{Job: "k"}, false},
		{Filter{Flow: "g"}, false},
	} {
		if got := c.f.Matches(e); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
	}
	many := &Event{Type: Changed, Kind: row.Tasks, Namespace: "n", Refresh: 2, Row: &row.Row{Job: "j"}}
	if !(Filter{Name: "t"}).Matches(many) || (Filter{Namespace: "o"}).Matches(many) || (Filter{Job: "k"}).Matches(many) {
		t.Error("a refresh matches filters for any task of its job only")
	}
	marker := &Event{Type: Resync, Kind: row.Tasks}
	if !(Filter{Namespace: "n", Name: "x"}).Matches(marker) || (Filter{Kind: row.Jobs}).Matches(marker) || !(Filter{Kind: row.Jobs}).Matches(&Event{Type: Resync}) {
		t.Error("a resync matches all filters for its kind only")
	}
}

// Publishes an event to 100 readers.
func BenchmarkPublish(b *testing.B) {
	const readers = 100
	r := NewRing("a", Limits{})
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var wg sync.WaitGroup
	for range readers {
		d := r.Since("")
		wg.Go(func() {
			for last := uint64(0); last < uint64(b.N); {
				e, err := d.Next(ctx)
				if err != nil {
					return
				}
				last = e.Seq
			}
		})
	}
	task := &row.Row{Kind: row.Tasks, Namespace: "default", Name: "survey-drive-17-wheels", UID: "5f1c1d6e-0000-4000-8000-000000000000", State: "running", Severity: row.Running, Job: "survey"}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_ = r.Publish(Event{Type: Changed, Kind: row.Tasks, Namespace: task.Namespace, Name: task.Name, UID: task.UID, Seq: uint64(i + 1), From: "dispatching", To: "running", Row: task})
	}
	wg.Wait()
}
