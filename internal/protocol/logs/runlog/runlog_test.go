package runlog

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

var start = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)

func minute(n int64) *time.Time { return new(start.Add(time.Duration(n) * time.Minute)) }

// newRecord returns run n, which began in minute n and took half a minute. since is the minute in which the
// contact was lost; 0: it was not.
func newRecord(n, since int64) Record {
	r := Record{Run: wire.Run{Run: n, StartedAt: minute(n), FinishedAt: new(minute(n).Add(30 * time.Second)), ExitCode: 1, Reason: "Exited"}}
	if since > 0 {
		r.NoContactSince = minute(since)
	}
	return r
}

func encode(t *testing.T, all ...Record) (lines []byte) {
	t.Helper()
	for _, r := range all {
		var err error
		if lines, err = r.Append(lines); err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// describe returns a page as text: its runs, and its gaps with their times.
func describe(p Page) string {
	var parts []string
	for _, r := range p.Items {
		text := fmt.Sprint(r.Run)
		if r.WithoutContact {
			text += "!"
		}
		parts = append(parts, text)
	}
	for _, g := range p.Gaps {
		parts = append(parts, fmt.Sprintf("%s %d-%d (%d) %s-%s", g.Reason, g.FirstRun, g.LastRun, g.Count(), clock(g.From), clock(g.To)))
	}
	return strings.Join(parts, " ")
}

func clock(t *time.Time) string {
	if t == nil {
		return "?"
	}
	return t.Format("04:05")
}

func TestCollector_FindsGaps(t *testing.T) {
	returned := func(n, at int64) Record {
		r := newRecord(n, 1)
		r.ContactAt = minute(at)
		return r
	}
	for _, row := range []struct {
		name    string
		records []Record
		want    string
	}{
		{"no run", nil, ""},
		{"with contact", []Record{newRecord(1, 0), newRecord(2, 0)}, "1 2"},
		{"written twice", []Record{newRecord(1, 0), newRecord(2, 0), newRecord(1, 0), newRecord(2, 0)}, "1 2"},
		{"out of contact", []Record{newRecord(1, 0), newRecord(2, 1), newRecord(3, 1), newRecord(9, 1)}, "1 2! 3! 9! OutOfContact 2-9 (8) 01:00-09:30 NotRecorded 4-8 (5) 03:30-09:00"},
		{"contact again", []Record{newRecord(2, 1), returned(2, 40), newRecord(3, 0)}, "2! 3 NotRecorded 1-1 (1) ?-02:00 OutOfContact 2-2 (1) 01:00-40:00"},
		{"contact again after a restart of the agent", []Record{newRecord(1, 1), returned(1, 2), returned(1, 40)}, "1! OutOfContact 1-1 (1) 01:00-02:00"},
		{"contact again without the run before", []Record{returned(1, 2), returned(1, 40)}, "1! OutOfContact 1-1 (1) 01:00-02:00"},
		{"out of contact twice", []Record{newRecord(1, 1), newRecord(2, 2)}, "1! 2! OutOfContact 1-1 (1) 01:00-01:30 OutOfContact 2-2 (1) 02:00-02:30"},
		{"the end of another gap", []Record{newRecord(1, 1), newRecord(2, 0), returned(1, 40), returned(2, 50)}, "1! 2 OutOfContact 1-1 (1) 01:00-01:30"},
	} {
		c := NewCollector(Query{})
		c.AddLines(encode(t, row.records...))
		if got := describe(c.BuildPage(1)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestCollector_ReturnsPages(t *testing.T) {
	var all []Record
	for n := range int64(25) {
		since := int64(0)
		if n >= 11 && n < 14 {
			since = 10
		}
		all = append(all, newRecord(n+1, since))
	}
	lines := encode(t, all...)
	var pages []string
	for q := (Query{Limit: 10}); ; {
		c := NewCollector(q)
		c.AddLines(lines)
		p := c.BuildPage(1)
		if p.RunCount != 25 || p.Attempt != 1 {
			t.Errorf("run count %d, attempt %d", p.RunCount, p.Attempt)
		}
		pages = append(pages, fmt.Sprintf("%s; %d", describe(p), p.Before))
		if q.Before = p.Before; q.Before == 0 {
			break
		}
	}
	want := "16 17 18 19 20 21 22 23 24 25; 16|6 7 8 9 10 11 12! 13! 14! 15 OutOfContact 12-14 (3) 10:00-14:30; 6|1 2 3 4 5; 0"
	if got := strings.Join(pages, "|"); got != want {
		t.Errorf("pages %s\nwant  %s", got, want)
	}
}

// A robot may send records so that there are gaps at each of its runs.
func TestCollector_KeepsOnlyThePage(t *testing.T) {
	const limit = 10
	for before, want := range map[int64]string{
		0:   "19999! NotRecorded 19998-19998 (1) 17:30-19:00 OutOfContact 19999-19999 (1) 19:00-19:30",
		100: "99! NotRecorded 98-98 (1) 37:30-39:00 OutOfContact 99-99 (1) 39:00-39:30 NotRecorded 100-100 (1) 39:30-41:00",
	} {
		c, one := NewCollector(Query{Limit: limit, Before: before}), NewCollector(Query{Limit: 1, Before: before})
		for n := int64(1); n < 20_000; n += 2 {
			c.AddRecord(newRecord(n, n))
			one.AddRecord(newRecord(n, n))
			if n := len(c.items) + len(c.missing) + len(c.outages); n > 6*limit+1 {
				t.Fatalf("before %d: %d items and gaps are kept", before, n)
			}
		}
		if p := c.BuildPage(1); len(p.Items) != limit || len(p.Gaps) > 2*limit+1 {
			t.Errorf("before %d: %d items, %d gaps", before, len(p.Items), len(p.Gaps))
		}
		if got := describe(one.BuildPage(1)); got != want {
			t.Errorf("before %d: %s, want %s", before, got, want)
		}
	}
}

func TestCollector_ReturnsWholeGaps(t *testing.T) {
	for _, row := range []struct {
		name string
		Query
		runs []int64 // all without contact
		want string
	}{
		{"from before the page to its end", Query{Limit: 1}, []int64{1, 2, 3, 4}, "4! OutOfContact 1-4 (4) 01:00-04:30"},
		{"from before the page to the runs after it", Query{Limit: 1, Before: 3}, []int64{1, 2, 3, 4}, "2! OutOfContact 1-4 (4) 01:00-04:30"},
		{"with runs without records", Query{}, []int64{1, 3, 5}, "1! 3! 5! OutOfContact 1-5 (5) 01:00-05:30 NotRecorded 2-2 (1) 01:30-03:00 NotRecorded 4-4 (1) 03:30-05:00"},
		{"in a page without records", Query{Before: 5}, []int64{9, 12}, "NotRecorded 1-8 (8) ?-09:00"},
	} {
		c := NewCollector(row.Query)
		for _, n := range row.runs {
			c.AddRecord(newRecord(n, 1))
		}
		if got := describe(c.BuildPage(1)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestParse_RejectsOtherLines(t *testing.T) {
	finished := `"finishedAt":"2026-11-21T14:00:00Z"`
	for _, line := range []string{
		"", "\n", "{", "2026-11-21T17:24:50.000000Z marked F 0", "{}", `{"run":1}`, `{"run":0,` + finished + `}`, `{"run":9007199254740992,` + finished + `}`,
		`{"run":1,"startedAt":"` + strings.Repeat("x", 2000) + `",` + finished + `}`,
	} {
		if r, ok := Parse([]byte(line)); ok {
			t.Errorf("%.80q reads as %+v", line, r)
		}
	}
	r, ok := Parse([]byte(`{"run":7,"reason":"` + strings.Repeat("r", 500) + `","new":true,` + finished + "}\n"))
	if !ok || r.Run.Run != 7 || len(r.Reason) != maxReason {
		t.Errorf("reads as %+v, %v", r, ok)
	}
}

func TestRecord_RoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.Custom(func(t *rapid.T) time.Time { return time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")).UTC() })
		r := Record{
			Run: wire.Run{
				Run: rapid.Int64Range(1, wire.MaxRunNumber).Draw(t, "run"), StartedAt: rapid.Ptr(times, true).Draw(t, "started"), FinishedAt: rapid.Ptr(times, false).Draw(t, "finished"),
				ExitCode: rapid.Int32().Draw(t, "code"), Signal: rapid.Int32().Draw(t, "signal"), Reason: rapid.StringN(0, maxReason, maxReason).Draw(t, "reason"),
				NoContactSince: rapid.Ptr(times, true).Draw(t, "since"),
			},
			ContactAt: rapid.Ptr(times, true).Draw(t, "contact"),
		}
		line, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := Parse(line)
		if again, _ := got.Append(nil); !ok || string(again) != string(line) || len(line) > maxLine {
			t.Fatalf("%q reads as %q, %v", line, again, ok)
		}
	})
}

// A robot may send anything as the records of its runs.
func FuzzCollector(f *testing.F) {
	f.Add([]byte(`{"run":1,"finishedAt":"2026-11-21T14:00:00Z","noContactSince":"2026-11-21T13:00:00Z"}` + "\n"))
	f.Add([]byte(`{"run":9007199254740991,"finishedAt":"2026-11-21T14:00:00Z"}` + "\n{}\n"))
	f.Fuzz(func(t *testing.T, lines []byte) {
		c := NewCollector(Query{Limit: 3})
		c.AddLines(lines)
		p := c.BuildPage(1)
		for i := range p.Items {
			if i > 0 && p.Items[i].Run <= p.Items[i-1].Run {
				t.Errorf("run %d follows %d", p.Items[i].Run, p.Items[i-1].Run)
			}
		}
		if len(p.Items) > 3 || len(p.Gaps) > 7 || p.RunCount > wire.MaxRunNumber {
			t.Errorf("%d items of %d, %d gaps", len(p.Items), p.RunCount, len(p.Gaps))
		}
	})
}

func TestQuery_RoundTrips(t *testing.T) {
	for _, q := range []Query{{}, {Attempt: 2}, {Attempt: 1, Limit: MaxLimit, Before: wire.MaxRunNumber}} {
		v, err := url.ParseQuery(q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseQuery(v); err != nil || got != q {
			t.Errorf("%+v reads as %+v, %v", q, got, err)
		}
	}
	for _, bad := range []string{"limit=0", "limit=10001", "attempt=x", "before=-1", "tail=3"} {
		v, _ := url.ParseQuery(bad)
		if _, err := ParseQuery(v); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
