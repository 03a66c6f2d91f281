package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	reader *Reader
	last   uint64 // seq of the last event, or of the start
	told   int
	resync bool // the last event was a Resync
}

// see checks the next event of a reader.
func (f *follower) see(t *rapid.T, e *Event, newest uint64) {
	switch {
	case e.Type == Resync:
		f.resync, f.last = true, e.Seq
		if e.Seq > newest {
			t.Fatalf("a resync to %d of %d", e.Seq, newest)
		}
	case e.Seq != f.last+1:
		t.Fatalf("%d came after %d, and nobody said that something is missing", e.Seq, f.last)
	default:
		f.resync, f.last = false, e.Seq
	}
	f.told++
	if f.reader.Position() != e.ID {
		t.Fatalf("position %s after event %s", f.reader.Position(), e.ID)
	}
}

// In any order of writing, reading, stopping and resuming, readers receive all events in order,
// or a Resync if some are missing.
func TestRing_DeliversInOrderOrResyncs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Events: rapid.IntRange(1, 12).Draw(t, "events"), Bytes: rapid.IntRange(1, 12*(perEvent+200)).Draw(t, "bytes")}
		r := NewRing("a", limits)
		r.setStart(100, 0, 0)
		newest := uint64(100)
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
						f.see(t, e, newest)
					}
				}
			},
			"resume": func(t *rapid.T) {
				f := all[rapid.IntRange(0, len(all)-1).Draw(t, "reader")]
				f.reader = r.Since(f.reader.Position())
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
				f.see(t, e, newest)
			}
			if f.last != newest {
				t.Fatalf("a reader was told up to %d of %d", f.last, newest)
			}
		}
	})
}

// Readers resume from another instance, which they may have left long before it stopped. Events
// arrive up to 30 seconds after they were written, in a different order in each instance.
func TestRing_ResumesFromOtherInstance(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		writes, now := make([]int, rapid.IntRange(1, 60).Draw(t, "events")), 0
		for i := range writes {
			now += rapid.SampledFrom([]int{0, 1, 1, 1, 10, 300}).Draw(t, "pause")
			writes[i] = now
		}
		old := NewRing("old", Limits{})
		old.setStart(0, 0, 0)
		reader, told, stream := old.Since(""), map[uint64]bool{}, arrivals(t, writes, 0, 0)
		told[0] = true // seq 0: nothing was written
		leaves := rapid.IntRange(0, len(stream)).Draw(t, "told")
		died := stream[max(0, leaves-1)].at + rapid.SampledFrom([]int{0, 1, 29, 30, 31, 59, 60, 61, 300}).Draw(t, "lived")
		for i, a := range stream {
			if a.at > died {
				break
			}
			publish(t, old, a.seq, a.seq)
			if i < leaves {
				told[reader.Poll().Seq] = true
			}
		}
		position, safe := heard(stream, died-60), heard(stream, died-30)
		next := NewRing("next", Limits{Events: rapid.IntRange(1, 60).Draw(t, "held")})
		next.setStart(position, safe, old.lastUpTo(safe))
		for _, a := range arrivals(t, writes, position, died+rapid.IntRange(0, 100).Draw(t, "down")) {
			next.now = func() time.Time { return noon.Add(time.Duration(a.at) * time.Second) }
			publish(t, next, a.seq, a.seq)
		}
		again := next.Since(reader.Position())
		for e := again.Poll(); e != nil; e = again.Poll() {
			if e.Type == Resync {
				return
			}
			told[e.Seq] = true
		}
		for seq := range uint64(len(writes)) {
			if !told[seq+1] {
				t.Fatalf("%d is missing: it was written at %v, the old stream was %v until %d, the new one begins at %d, safe %d", seq+1, writes, stream, died, position, safe)
			}
		}
	})
}

type arrival struct {
	seq uint64
	at  int // seconds
}

// arrivals returns when an instance that starts at there receives the writes after a seq, each
// with a delay of less than 30 seconds.
func arrivals(t *rapid.T, writes []int, after uint64, there int) (out []arrival) {
	for seq := after + 1; seq <= uint64(len(writes)); seq++ {
		out = append(out, arrival{seq, max(there, writes[seq-1]+rapid.IntRange(0, 29).Draw(t, "delay"))})
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return a.at - b.at })
	return out
}

// heard returns the greatest seq received by a time.
func heard(stream []arrival, by int) (seq uint64) {
	for _, a := range stream {
		if a.at <= by {
			seq = max(seq, a.seq)
		}
	}
	return seq
}

func TestRingSince_FindsPosition(t *testing.T) {
	r := NewRing("b", Limits{Events: 5})
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	r.setStart(1000, 0, 990)
	ask := func(name, id string, want ...uint64) {
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
			t.Errorf("%s: since %s came %v, want %v (0 is a resync)", name, id, got, want)
		}
	}
	ask("a reader of the earlier incarnation that knew everything up to where this one begins", "a:990:7")
	ask("one that knew less", "a:980:6", 0)
	publish(t, r, 1001, 1003)
	ask("the last event before this incarnation", "a:990:7", 1001, 1002, 1003)
	ask("an event before it", "a:980:6", 0)
	ask("an event after where this one begins", "a:1002:9", 1001, 1002, 1003)
	ask("one of this incarnation", "b:1001:1", 1002, 1003)
	ask("its start", "b:1000:0", 1001, 1002, 1003)
	ask("its end", "b:1003:3")
	ask("one that is still to come", "b:1009:9", 0)
	ask("no id", "", []uint64{}...)
	for _, id := range []string{"nonsense", "b:1:x", "b:x:1", "1003", "::", "b:1003:3:4"} {
		ask("what is no id", id, 0)
	}
	publish(t, r, 1004, 1009)
	ask("what is not held any more", "b:1001:1", 0)
	ask("the last that is not held", "b:1004:4", 1005, 1006, 1007, 1008, 1009)
	ask("the same of an earlier incarnation, when one that came late may be among what is not held", "a:1004:4", 0)
	ask("the one before the first, which is not held", "a:990:7", 0)
	now = now.Add(2 * overlap)
	publish(t, r, 1010, 1012)
	ask("one that came two minutes after what is not held", "a:1010:4", 1010, 1011, 1012)
	ask("the one before it, which may have come before one that is not held", "a:1009:4", 0)
	now = now.Add(2 * overlap)
	publish(t, r, 1013, 1017)
	ask("the one before the first, which was dropped long ago", "a:990:7", 0)
	ask("the last before those that are held", "a:1012:4", 0)
}

// A reader that changes to another instance gets the events of one minute again, not all.
func TestRing_RepeatsOneMinuteForOtherInstance(t *testing.T) {
	r := NewRing("b", Limits{})
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	r.setStart(1, 0, 0)
	for seq := uint64(2); seq <= 200; seq++ {
		publish(t, r, seq, seq)
		now = now.Add(time.Second)
	}
	if e := r.Since("a:150:9").Poll(); e.Seq != 90 {
		t.Errorf("it begins with %d, a minute before 150 is 90", e.Seq)
	}
}

// Waiting readers are woken and receive all events. A reader that never reads does not delay
// others or retain memory, and readers need no goroutine of the ring.
func TestRing_WakesWaitingReaders(t *testing.T) {
	const readers, events = 50, 2000
	r := NewRing("a", Limits{Events: events})
	r.setStart(0, 0, 0)
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
		t.Errorf("the slow one is told %+v", e)
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
			t.Fatalf("nobody is woken by %d", seq)
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
		if got := c.f.Match(e); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
	}
	many := &Event{Type: Changed, Kind: row.Tasks, Namespace: "n", Refresh: 2, Row: &row.Row{Job: "j"}}
	if !(Filter{Name: "t"}).Match(many) || (Filter{Namespace: "o"}).Match(many) || (Filter{Job: "k"}).Match(many) {
		t.Error("a refresh is for all who look at a task of its job")
	}
	marker := &Event{Type: Resync, Kind: row.Tasks}
	if !(Filter{Namespace: "n", Name: "x"}).Match(marker) || (Filter{Kind: row.Jobs}).Match(marker) || !(Filter{Kind: row.Jobs}).Match(&Event{Type: Resync}) {
		t.Error("a resync is for all who look at its kind")
	}
}

// Publishes an event to 100 readers.
func BenchmarkPublish(b *testing.B) {
	const readers = 100
	r := NewRing("a", Limits{})
	r.setStart(0, 0, 0)
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
	task := &row.Row{Kind: row.Tasks, Namespace: "default", Name: "survey-drive-17-wheels", UID: "5f1c1d6e-0000-4000-8000-000000000000", State: "running", Tone: row.Running, Job: "survey"}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_ = r.Publish(Event{Type: Changed, Kind: row.Tasks, Namespace: task.Namespace, Name: task.Name, UID: task.UID, Seq: uint64(i + 1), From: "dispatching", To: "running", Row: task})
	}
	wg.Wait()
}
