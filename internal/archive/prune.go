package archive

import (
	"context"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

// PruneBatch bounds the objects, attempts or transitions that one transaction removes, so that
// writers do not wait long.
const PruneBatch = 500

// Retention limits what the archive keeps.
type Retention struct {
	// Age is how long an object is kept after its end, an attempt or a transition of an object that
	// has not ended after it happened, and an action of a user. Zero: forever.
	Age time.Duration
	// Bytes is the largest total size: above it the objects that ended first are removed. Objects
	// that have not ended stay. Actions may take a tenth of it in addition. Zero: no limit.
	Bytes int64
}

// Pruned counts what was removed.
type Pruned struct {
	// Objects with all that belonged to them, and their Bytes.
	Objects int
	Bytes   int64
	// Attempts and Transitions of objects that stay.
	Attempts, Transitions int64
	// Actions of users.
	Actions int64
}

// Prune removes what exceeds the retention. The counts are right even if it returns an error.
func (s *Store) Prune(ctx context.Context, r Retention) (Pruned, error) {
	var all Pruned
	cutoff := s.now().Add(-r.Age)
	for more := true; more; {
		var batch Pruned
		var err error
		if batch, more, err = s.pruneOnce(ctx, r, cutoff); err != nil {
			return all, fmt.Errorf("archive: prune: %w", err)
		}
		all.Objects += batch.Objects
		all.Bytes += batch.Bytes
		all.Attempts += batch.Attempts
		all.Transitions += batch.Transitions
		all.Actions += batch.Actions
	}
	if s.file != "" && all != (Pruned{}) {
		return all, s.releaseSpace(ctx)
	}
	return all, nil
}

// pruneOnce removes one batch, and returns whether there may be more.
func (s *Store) pruneOnce(ctx context.Context, r Retention, cutoff time.Time) (out Pruned, more bool, err error) {
	err = s.inTransaction(ctx, func(q *sqldb.Queries) error {
		out, more = Pruned{}, false
		var size int64
		var err error
		if r.Bytes > 0 { // it reads an index from end to end
			if size, err = q.Size(ctx); err != nil {
				return err
			}
		}
		oldest, err := q.Oldest(ctx, s.pruneBatch)
		if err != nil {
			return err
		}
		for _, o := range oldest {
			aged := r.Age > 0 && timeOf(o.EndedAt).Before(cutoff)
			if !aged && size <= r.Bytes {
				break
			}
			if err := q.DeleteObject(ctx, o.Uid); err != nil {
				return err
			}
			size -= o.Bytes
			out.Objects++
			out.Bytes += o.Bytes
		}
		if r.Age > 0 {
			if out.Attempts, err = q.PruneAttempts(ctx, sqldb.PruneAttemptsParams{FinishedAt: nullMicros(cutoff), Limit: s.pruneBatch}); err != nil {
				return err
			}
			if out.Transitions, err = q.PruneTransitions(ctx, sqldb.PruneTransitionsParams{At: cutoff.UnixMicro(), Limit: s.pruneBatch}); err != nil {
				return err
			}
		}
		if out.Actions, err = s.pruneActions(ctx, q, r, cutoff); err != nil {
			return err
		}
		more = max(int64(out.Objects), out.Attempts, out.Transitions, out.Actions) == int64(s.pruneBatch)
		return nil
	})
	return out, more, err
}

// releaseSpace returns free pages to the file system.
func (s *Store) releaseSpace(ctx context.Context) error {
	s.write.Lock()
	defer s.write.Unlock()
	for _, step := range []string{"PRAGMA incremental_vacuum", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		rows, err := s.db.QueryContext(ctx, step)
		if err != nil {
			return fmt.Errorf("archive: %s: %w", step, err)
		}
		for rows.Next() { // it works as it is read
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("archive: %s: %w", step, err)
		}
	}
	return nil
}

// TotalBytes returns the size for which everything in the archive counts.
func (s *Store) TotalBytes(ctx context.Context) (int64, error) {
	q, err := s.readyQueries(ctx)
	if err != nil {
		return 0, err
	}
	return q.Size(ctx)
}
