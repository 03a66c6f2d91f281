package archive

import (
	"context"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

// pruneBatch is how many objects, attempts or transitions go in one transaction, so that
// nobody who records waits long.
const pruneBatch = 500

// Retention says what is kept.
type Retention struct {
	// Age is how long an object is kept after its end, and an attempt or a transition of
	// one that lives. Zero: for ever.
	Age time.Duration
	// Bytes is how much is kept: beyond it the objects go that ended first. What has not
	// ended stays. Zero: any amount.
	Bytes int64
}

// Pruned is what was removed.
type Pruned struct {
	// Objects with all that belonged to them, and their Bytes.
	Objects int
	Bytes   int64
	// Attempts and Transitions of objects that stay.
	Attempts, Transitions int64
}

// Prune removes what is not to be kept any more. What it says was removed is so, even where it
// returns an error.
func (s *Store) Prune(ctx context.Context, r Retention) (Pruned, error) {
	var all Pruned
	cutoff := s.now().Add(-r.Age)
	for more := true; more; {
		var batch Pruned
		var err error
		if batch, more, err = s.pruneSome(ctx, r, cutoff); err != nil {
			return all, fmt.Errorf("archive: prune: %w", err)
		}
		all.Objects += batch.Objects
		all.Bytes += batch.Bytes
		all.Attempts += batch.Attempts
		all.Transitions += batch.Transitions
	}
	if s.file != "" && all != (Pruned{}) {
		return all, s.shrink(ctx)
	}
	return all, nil
}

// pruneSome removes one batch, and tells whether there may be more.
func (s *Store) pruneSome(ctx context.Context, r Retention, cutoff time.Time) (out Pruned, more bool, err error) {
	err = s.change(ctx, func(q *sqldb.Queries) error {
		out, more = Pruned{}, false
		var size int64
		var err error
		if r.Bytes > 0 { // it reads an index from end to end
			if size, err = q.Size(ctx); err != nil {
				return err
			}
		}
		oldest, err := q.Oldest(ctx, pruneBatch)
		if err != nil {
			return err
		}
		for _, o := range oldest {
			aged := r.Age > 0 && moment(o.EndedAt).Before(cutoff)
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
			if out.Attempts, err = q.PruneAttempts(ctx, sqldb.PruneAttemptsParams{FinishedAt: micros(cutoff), Limit: pruneBatch}); err != nil {
				return err
			}
			if out.Transitions, err = q.PruneTransitions(ctx, sqldb.PruneTransitionsParams{At: cutoff.UnixMicro(), Limit: pruneBatch}); err != nil {
				return err
			}
		}
		more = out.Objects == pruneBatch || out.Attempts == pruneBatch || out.Transitions == pruneBatch
		return nil
	})
	return out, more, err
}

// shrink gives the room of what was removed back to the file system.
func (s *Store) shrink(ctx context.Context) error {
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

// Size is how many bytes all that is in the archive counts for.
func (s *Store) Size(ctx context.Context) (int64, error) {
	q, err := s.queries(ctx)
	if err != nil {
		return 0, err
	}
	return q.Size(ctx)
}
