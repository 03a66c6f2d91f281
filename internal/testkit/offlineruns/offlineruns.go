// Package offlineruns measures when the runs that a robot has made without contact can be read, for tests and
// for bench/autonomy.
package offlineruns

import (
	"context"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/logs/runlog"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/testkit/simrobot"
)

// pollInterval is the pause between two reads.
const pollInterval = 20 * time.Millisecond

// NewRecords returns the records of runs from one number to another, of a second each, that ended without
// contact since a time.
func NewRecords(from, to int64, since time.Time) []runlog.Record {
	records := make([]runlog.Record, 0, to-from+1)
	for n := from; n <= to; n++ {
		started := since.Add(time.Duration(n) * time.Second)
		records = append(records, runlog.Record{Run: wire.Run{
			Run: n, StartedAt: &started, FinishedAt: new(started.Add(500 * time.Millisecond)), ExitCode: 1, Reason: wire.ReasonExited, NoContactSince: &since,
		}})
	}
	return records
}

// Measure breaks the connection of a robot, whose Config has a LogDir, lets it make the runs 1 to n of an
// attempt that it runs, and connects it again. It returns the time from then until countRuns, which reads the
// runs as a user does, returns n.
func Measure(ctx context.Context, r *simrobot.Robot, uid string, attempt int32, n int64, countRuns func(context.Context) (int64, error)) (time.Duration, error) {
	r.BreakConnection()
	if err := r.AddRuns(uid, attempt, NewRecords(1, n, time.Now().Add(-3*time.Hour))); err != nil {
		return 0, fmt.Errorf("write the records of runs: %w", err)
	}
	start := time.Now()
	if err := r.Reconnect(ctx); err != nil {
		return 0, err
	}
	for {
		switch found, err := countRuns(ctx); {
		case err != nil:
			return 0, fmt.Errorf("read the runs: %w", err)
		case found == n:
			return time.Since(start), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}
