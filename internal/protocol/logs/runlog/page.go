package runlog

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// Run is one run of an attempt, for readers.
type Run struct {
	Run int64 `json:"run"`
	// StartedAt and FinishedAt are by the robot's clock. If StartedAt is nil, the process was not started,
	// and if FinishedAt is nil, it runs.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	ExitCode   *int32     `json:"exitCode,omitempty"`
	Signal     int32      `json:"signal,omitempty"`
	Reason     string     `json:"reason,omitempty"`
	// WithoutContact is set if the robot had no contact with the server when the run ended.
	WithoutContact bool `json:"withoutContact,omitempty"`
}

// Reason is what a Gap is about.
type Reason string

// The reasons of gaps.
const (
	// OutOfContact: the robot was out of contact, and made the runs alone. They have records.
	OutOfContact Reason = "OutOfContact"
	// NotRecorded: the runs have no records. The robot or the server had no more room, or the robot was
	// switched off before they were written, or its agent writes none.
	NotRecorded Reason = "NotRecorded"
	// NotReceived: the records of the runs have not arrived yet.
	NotReceived Reason = "NotReceived"
)

// Gap is a part of the runs that the server did not see as they happened.
type Gap struct {
	Reason   Reason `json:"reason"`
	FirstRun int64  `json:"firstRun"`
	LastRun  int64  `json:"lastRun"`
	// From and To are by the robot's clock. Nil: not known.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
}

// Count returns the number of runs.
func (g Gap) Count() int64 { return g.LastRun - g.FirstRun + 1 }

// Page is a part of the runs of an attempt, and the gaps in it.
type Page struct {
	Attempt int32 `json:"attempt"`
	// RunCount is the number of the last run that is known. If 0, the robot does not restart the task.
	RunCount int64 `json:"runCount"`
	// Items are in the order of their numbers.
	Items []Run `json:"items"`
	// Gaps are those with runs from the first to the last item, and those without records next to them, in
	// the order of their first runs.
	Gaps []Gap `json:"gaps"`
	// Before of the Query for the runs before these. If 0, there are none.
	Before int64 `json:"before,omitempty"`
}

// Collector builds a Page from all records of an attempt. It keeps no more than two pages of them,
// and of their gaps, whatever a robot sends.
type Collector struct {
	limit  int
	before int64 // 0: no bound
	// Missing is the reason of a gap without records that ends with the next run.
	Missing Reason

	last Run
	// contactRun is the last run with a record of contact. Later ones are of an agent that was started
	// again, and that does not know when the robot had contact first.
	contactRun int64

	items []Run
	more  bool
	// missing and outages are the gaps by kind, in the order of their first runs.
	missing, outages []Gap
}

// NewCollector returns a Collector for the page of a query.
func NewCollector(q Query) *Collector {
	return &Collector{limit: q.limitOrDefault(), before: q.Before, Missing: NotRecorded, items: []Run{}}
}

// AddLines adds the records in whole lines.
func (c *Collector) AddLines(lines []byte) {
	for line := range bytes.Lines(lines) {
		if r, ok := Parse(line); ok {
			c.AddRecord(r)
		}
	}
}

// AddRecord adds a record. A run that is known already, or is before the last one, is not added again.
func (c *Collector) AddRecord(r Record) {
	if r.Run.Run > c.last.Run {
		run := Run{
			Run: r.Run.Run, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, ExitCode: new(r.ExitCode), Signal: r.Signal, Reason: r.Reason,
			WithoutContact: r.NoContactSince != nil,
		}
		c.AddRun(run)
		if r.NoContactSince != nil {
			c.addContactGap(run, *r.NoContactSince)
		}
	}
	if r.ContactAt != nil && r.Run.Run == c.last.Run && c.contactRun != c.last.Run {
		c.contactRun = c.last.Run
		c.endContactGap(*r.ContactAt)
	}
}

// AddRun adds a run after those that were added, and the gap before it.
func (c *Collector) AddRun(r Run) {
	if r.Run <= c.last.Run {
		return
	}
	// A gap after the page is kept only if it is next to it.
	if r.Run > c.last.Run+1 && c.isBeforeEnd(c.last.Run) {
		c.missing = append(c.missing, Gap{Reason: c.Missing, FirstRun: c.last.Run + 1, LastRun: r.Run - 1, From: c.last.FinishedAt, To: r.StartedAt})
	}
	c.last = r
	if !c.isBeforeEnd(r.Run) {
		return
	}
	if len(c.items) >= 2*c.limit {
		c.trimItems() // before r is added, which may belong to the last gap
	}
	c.items = append(c.items, r)
}

// isBeforeEnd reports whether a run is not after the page.
func (c *Collector) isBeforeEnd(run int64) bool { return c.before == 0 || run < c.before }

// trimItems keeps the last items of the page, and the gaps from the first of them on.
func (c *Collector) trimItems() {
	over := len(c.items) - c.limit
	if over <= 0 {
		return
	}
	c.more, c.items = true, slices.Delete(c.items, 0, over)
	first := c.items[0].Run
	c.outages = slices.DeleteFunc(c.outages, func(g Gap) bool { return g.LastRun < first })
	c.missing = slices.DeleteFunc(c.missing, func(g Gap) bool { return g.LastRun+1 < first })
}

// addContactGap adds a run without contact to its gap. Runs between without records belong to the same one.
func (c *Collector) addContactGap(r Run, since time.Time) {
	if n := len(c.outages); n > 0 && c.outages[n-1].From.Equal(since) {
		c.outages[n-1].LastRun, c.outages[n-1].To = r.Run, r.FinishedAt
		return
	}
	if c.isBeforeEnd(r.Run) {
		c.outages = append(c.outages, Gap{Reason: OutOfContact, FirstRun: r.Run, LastRun: r.Run, From: &since, To: r.FinishedAt})
	}
}

// endContactGap sets the end of the gap to which the last run belongs.
func (c *Collector) endContactGap(at time.Time) {
	if n := len(c.outages); n > 0 && c.outages[n-1].LastRun == c.last.Run {
		c.outages[n-1].To = &at
	}
}

// LastRun returns the number of the last run that was added. 0: none was.
func (c *Collector) LastRun() int64 { return c.last.Run }

// BuildPage returns the page. Without items its gaps are those in which all its runs are.
func (c *Collector) BuildPage(attempt int32) Page {
	c.trimItems()
	p := Page{Attempt: attempt, RunCount: c.last.Run, Items: c.items, Gaps: append([]Gap{}, c.missing...)}
	p.Gaps = append(p.Gaps, c.outages...)
	slices.SortFunc(p.Gaps, func(a, b Gap) int { return cmp.Compare(a.FirstRun, b.FirstRun) })
	if c.more {
		p.Before = c.items[0].Run
	}
	return p
}
