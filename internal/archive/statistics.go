package archive

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"
)

// MaxRuns is how many runs statistics are made of, the newest, so that they take as long in a
// year as today.
const MaxRuns = 10_000

// Span chooses what statistics are made of.
type Span struct {
	// Namespaces that the reader may see. Nil: all; empty: none.
	Namespaces []Namespace
	// Namespace selects those of the name. Empty: any.
	Namespace string
	// Template of the objects. Empty: any.
	Template string
	// Since and Until bound when they ended: [Since, Until). Zero: no bound.
	Since, Until time.Time
	// Limit of rows. 0 means DefaultLimit; it is never more than MaxLimit.
	Limit int
}

// Sample is what statistics were made of.
type Sample struct {
	// Runs that were counted.
	Runs int
	// Since is when the first of them ended, where there were more than MaxRuns. Zero: they are
	// all of the span.
	Since time.Time
}

// Failures of a step.
type Failures struct {
	Template, Step string
	// Attempts that have ended, and those of them that failed.
	Attempts, Failed int64
	// Last is when one failed last.
	Last time.Time
}

// Times of a step.
type Times struct {
	Template, Step string
	// Count of runs that succeeded.
	Count int64
	// P50, P95 and Max of the time that they took.
	P50, P95, Max time.Duration
}

// stepOf is what statistics are by.
type stepOf struct{ template, name string }

func (a stepOf) compareTo(b stepOf) int {
	return cmp.Or(cmp.Compare(a.template, b.template), cmp.Compare(a.name, b.name))
}

// run is an attempt, or an object, that has ended.
type run struct {
	stepOf
	ended int64 // microseconds since 1970
	value int64 // what is asked for
}

// MostFailing finds the tasks that fail, by how many of their attempts did.
func (s *Store) MostFailing(ctx context.Context, p Span) ([]Failures, Sample, error) {
	runs, sample, err := s.queryRuns(ctx, "what fails most", "failed FROM attempts", p, func(*where) {})
	if err != nil {
		return nil, Sample{}, err
	}
	of := map[stepOf]*Failures{}
	for _, r := range runs {
		f := of[r.stepOf]
		if f == nil {
			f = &Failures{Template: r.template, Step: r.name}
			of[r.stepOf] = f
		}
		f.Attempts++
		f.Failed += r.value
		if at := time.UnixMicro(r.ended).UTC(); r.value == 1 && at.After(f.Last) {
			f.Last = at
		}
	}
	var all []Failures
	for _, f := range of {
		if f.Failed > 0 {
			all = append(all, *f)
		}
	}
	slices.SortFunc(all, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), stepOf{a.Template, a.Step}.compareTo(stepOf{b.Template, b.Step}))
	})
	return all[:min(len(all), pageLimit(p.Limit))], sample, nil
}

// StepTimes finds how long steps take that succeed: those of kind Task are the tasks of jobs,
// those of kind Job and VCJob are the jobs of flows. Percentiles are by nearest rank: one of
// the times that were measured.
func (s *Store) StepTimes(ctx context.Context, kind Kind, p Span) ([]Times, Sample, error) {
	runs, sample, err := s.queryRuns(ctx, "how long steps take", "finished_at - started_at FROM objects", p, func(w *where) {
		w.addTerm("kind = ?", string(kind))
		w.addTerm("outcome = ?", string(Succeeded))
		w.addTerm("started_at IS NOT NULL")
	})
	if err != nil {
		return nil, Sample{}, err
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(a.compareTo(b.stepOf), cmp.Compare(a.value, b.value)) })
	var all []Times
	for len(runs) > 0 && len(all) < pageLimit(p.Limit) {
		n := 1
		for n < len(runs) && runs[n].stepOf == runs[0].stepOf {
			n++
		}
		all = append(all, Times{
			Template: runs[0].template, Step: runs[0].name, Count: int64(n),
			P50: microseconds(runs[(n*50+99)/100-1].value), P95: microseconds(runs[(n*95+99)/100-1].value), Max: microseconds(runs[n-1].value),
		})
		runs = runs[n:]
	}
	return all, sample, nil
}

// queryRuns finds the newest of a span that are chosen.
func (s *Store) queryRuns(ctx context.Context, what, from string, p Span, choose func(*where)) ([]run, Sample, error) {
	var all []run
	for _, namespaces := range groupNamespaces(p.Namespaces) {
		var w where
		choose(&w)
		w.requireNamespaces("", namespaces)
		w.requireEqual("namespace", p.Namespace)
		w.requireEqual("template", p.Template)
		w.addTerm("finished_at IS NOT NULL")
		w.requireTime("finished_at", p.Since, p.Until)
		some, err := queryRows(ctx, s, what, "SELECT template, step, finished_at, "+from+w.String()+
			" ORDER BY finished_at DESC LIMIT "+w.addArg(s.maxRuns+1), w.args, scanRun)
		if err != nil {
			return nil, Sample{}, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(b.ended, a.ended) })
	n := s.maxRuns
	if len(all) <= n {
		return all, Sample{Runs: len(all)}, nil
	}
	return all[:n], Sample{n, time.UnixMicro(all[n-1].ended).UTC()}, nil
}

func scanRun(rows *sql.Rows) (r run, err error) {
	err = rows.Scan(&r.template, &r.name, &r.ended, &r.value)
	return r, err
}
