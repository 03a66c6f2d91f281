package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
)

// testCoalescer is a coalescer with a manual clock, and the events that it published.
type testCoalescer struct {
	*coalescer
	published []Event
	later     []func()
}

func newTestCoalescer() *testCoalescer {
	f := &testCoalescer{}
	f.coalescer = newCoalescer(func(all ...Event) { f.published = append(f.published, all...) }, func(_ time.Duration, do func()) { f.later = append(f.later, do) })
	return f
}

// advanceSecond advances the clock by one second.
func (f *testCoalescer) advanceSecond() {
	due := f.later
	f.later = nil
	for _, do := range due {
		do()
	}
}

// changeState writes a task of job j in state to.
func (f *testCoalescer) changeState(seq uint64, name, from, to, reason string) {
	item := func(state string) *Item {
		t := task(name, state)
		t.UID, t.Status.Reason, t.Status.Message = types.UID(name), reason, "job j: "+reason
		t.ResourceVersion = fmt.Sprint(seq)
		return &Item{Row: row.Describe(t), Object: t}
	}
	f.publishOrHold(changeEvent(item(from), item(to), time.Time{}))
}

func (f *testCoalescer) lines() string {
	var all []string
	for i := range f.published {
		e := &f.published[i]
		if e.Refresh > 0 {
			all = append(all, fmt.Sprintf("%d tasks of %s >%s %s after %d", e.Refresh, e.Row.Job, e.To, e.Message, e.After))
			continue
		}
		all = append(all, line(e))
	}
	return strings.Join(all, "\n")
}

func TestCoalescer_MergesMassChange(t *testing.T) {
	canceled := v1alpha1.ReasonCanceled
	for _, c := range []struct {
		name string
		do   func(f *testCoalescer)
		want string
	}{
		{"the first change is published at once, the others together", func(f *testCoalescer) {
			for i := range 10 {
				f.changeState(uint64(20+i), fmt.Sprint("t", i), "pending", "canceled", canceled)
			}
			f.advanceSecond()
			f.advanceSecond()
			f.changeState(40, "late", "pending", "canceled", canceled)
		}, "changed t0 pending>canceled\n9 tasks of j >canceled job j: Canceled after 20\nchanged late pending>canceled"},
		{"a single further change is published unchanged", func(f *testCoalescer) {
			f.changeState(20, "a", "pending", "paused", v1alpha1.ReasonPaused)
			f.changeState(21, "b", "pending", "paused", v1alpha1.ReasonPaused)
			f.advanceSecond()
		}, "changed a pending>paused\nchanged b pending>paused"},
		{"a longer mass change is published every second", func(f *testCoalescer) {
			for i := range 5 {
				f.changeState(uint64(20+i), fmt.Sprint("t", i), "pending", "canceled", canceled)
				if i > 0 && i%2 == 0 {
					f.advanceSecond()
				}
			}
		}, "changed t0 pending>canceled\n2 tasks of j >canceled job j: Canceled after 20\n2 tasks of j >canceled job j: Canceled after 22"},
		{"other changes of tasks are published one by one", func(f *testCoalescer) {
			for i := range 3 {
				f.changeState(uint64(20+i), fmt.Sprint("t", i), "running", "completed", "")
			}
		}, "changed t0 running>completed\nchanged t1 running>completed\nchanged t2 running>completed"},
		{"a change without a new state is not part of it", func(f *testCoalescer) {
			f.changeState(20, "a", "canceled", "canceled", canceled)
			f.changeState(21, "b", "canceled", "canceled", canceled)
		}, "changed a canceled>canceled\nchanged b canceled>canceled"},
		{"the events of a task stay in order", func(f *testCoalescer) {
			for i := range 3 {
				f.changeState(uint64(20+i), fmt.Sprint("t", i), "paused", "pending", v1alpha1.ReasonResumed)
			}
			f.changeState(23, "t1", "pending", "dispatching", "")
		}, "changed t0 paused>pending\n2 tasks of j >pending job j: Resumed after 20\nchanged t1 pending>dispatching"},
		{"they stay in order across a list", func(f *testCoalescer) {
			for i := range 3 {
				f.changeState(uint64(20+i), fmt.Sprint("t", i), "pending", "paused", v1alpha1.ReasonPaused)
			}
			f.publishAll([]Event{{Type: Resync, Kind: row.Tasks}})
		}, "changed t0 pending>paused\n2 tasks of j >paused job j: Paused after 20\nresync tasks"},
	} {
		f := newTestCoalescer()
		c.do(f)
		if got := f.lines(); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
}

// A reader that loads, at each refresh, what was written since After ends with the current state
// and never goes back.
func TestCoalescer_ReaderMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newTestCoalescer()
		type fact struct {
			state string
			seq   uint64
		}
		current, known, received := map[string]fact{}, map[string]fact{}, map[string]uint64{}
		read := 0
		follow := func() {
			for ; read < len(f.published); read++ {
				e := &f.published[read]
				if e.Refresh == 0 {
					if e.Seq < received[e.Name] {
						t.Fatalf("%s: event %d after %d", e.Name, e.Seq, received[e.Name])
					}
					received[e.Name] = e.Seq
					if e.Seq > known[e.Name].seq { // the load may have returned a newer version
						known[e.Name] = fact{e.To, e.Seq}
					}
					continue
				}
				for name, is := range current {
					if is.seq > e.After {
						known[name] = is
					}
				}
			}
		}
		reasons := []string{"", v1alpha1.ReasonCanceled, v1alpha1.ReasonCanceled}
		for seq := uint64(1); seq < 60; seq++ {
			if rapid.IntRange(0, 9).Draw(t, "a second") == 0 {
				f.advanceSecond()
			}
			name, to := fmt.Sprint("t", rapid.IntRange(0, 5).Draw(t, "task")), rapid.SampledFrom([]string{"paused", "canceled"}).Draw(t, "state")
			f.changeState(seq, name, current[name].state, to, rapid.SampledFrom(reasons).Draw(t, "reason"))
			current[name] = fact{to, seq}
			if rapid.IntRange(0, 3).Draw(t, "it reads") == 0 {
				follow()
			}
		}
		f.advanceSecond()
		follow()
		for name, is := range current {
			if known[name] != is {
				t.Fatalf("%s is %v, and the reader knows %v", name, is, known[name])
			}
		}
	})
}
