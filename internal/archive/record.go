package archive

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

// Record writes objects in one transaction. Objects that were recorded in the same or a newer
// version stay as they are, so it may be repeated. When it returns nil, the objects survive a
// crash of every program.
func (s *Store) Record(ctx context.Context, objects ...Object) error {
	for i := range objects {
		if err := objects[i].validateObject(); err != nil {
			return fmt.Errorf("archive: record: %w", err)
		}
	}
	// In one order everywhere: of two programs that record the same objects neither holds
	// what the other waits for.
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b Object) int { return cmp.Compare(a.UID, b.UID) })
	err := s.inTransaction(ctx, func(q *sqldb.Queries) error {
		for i := range sorted {
			if err := s.recordObject(ctx, q, &sorted[i]); err != nil {
				return fmt.Errorf("%s %s/%s: %w", sorted[i].Kind, sorted[i].Namespace, sorted[i].Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("archive: record: %w", err)
	}
	return nil
}

// recordObject writes one object if it is newer than the recorded one.
func (s *Store) recordObject(ctx context.Context, q *sqldb.Queries, o *Object) error {
	was, err := q.Seen(ctx, o.UID)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if known && was.Version >= o.Version {
		return nil
	}
	written, err := q.PutObject(ctx, sqldb.PutObjectParams{
		Uid: o.UID, Kind: string(o.Kind), Namespace: o.Namespace, Name: o.Name, Version: o.Version, OwnerUid: o.Owner,
		Template: o.Template, Step: o.Step, Robot: o.Robot, Phase: o.Phase, Reason: validText(o.Reason), Outcome: string(o.Outcome),
		CreatedAt: o.Created.UnixMicro(), StartedAt: nullMicros(o.Started), FinishedAt: nullMicros(o.Finished), EndedAt: nullMicros(o.Finished),
		Bytes: o.storedBytes(), Manifest: string(o.Manifest), NamespaceUid: o.NamespaceUID,
	})
	if err != nil || written == 0 {
		return err
	}
	if !known || was.Phase != o.Phase {
		at := o.Changed
		if at.IsZero() {
			at = s.now()
		}
		err := q.PutTransition(ctx, sqldb.PutTransitionParams{
			Uid: o.UID, Version: o.Version, At: at.UnixMicro(), FromPhase: was.Phase, ToPhase: o.Phase, Reason: validText(o.Reason),
		})
		if err != nil {
			return fmt.Errorf("transition: %w", err)
		}
	}
	if err := putLabels(ctx, q, o); err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	for i := range o.Attempts {
		if err := q.PutAttempt(ctx, attemptRow(o, &o.Attempts[i])); err != nil {
			return fmt.Errorf("attempt %d: %w", o.Attempts[i].Number, err)
		}
	}
	return nil
}

func putLabels(ctx context.Context, q *sqldb.Queries, o *Object) error {
	// Also for a new object: another program may have recorded it meanwhile.
	if err := q.ClearLabels(ctx, o.UID); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		if err := q.PutLabel(ctx, sqldb.PutLabelParams{Uid: o.UID, Name: name, Value: o.Labels[name]}); err != nil {
			return err
		}
	}
	return nil
}

func attemptRow(o *Object, a *Attempt) sqldb.PutAttemptParams {
	row := sqldb.PutAttemptParams{
		TaskUid: o.UID, Attempt: a.Number, Namespace: o.Namespace, Task: o.Name, Job: a.Job, Template: o.Template, Step: o.Step,
		Robot: a.Robot, State: a.State, Reason: validText(a.Reason), Signal: a.Signal, RunCount: a.RunCount, StartedAt: nullMicros(a.Started), FinishedAt: nullMicros(a.Finished), Log: a.Log, NamespaceUid: o.NamespaceUID,
	}
	if a.Failed {
		row.Failed = 1
	}
	if a.ExitCode != nil {
		row.ExitCode = sql.NullInt64{Int64: *a.ExitCode, Valid: true}
	}
	return row
}

// MarkDeleted records when an object was deleted. It ignores objects that are not in the archive.
func (s *Store) MarkDeleted(ctx context.Context, uid string, at time.Time) error {
	err := s.inTransaction(ctx, func(q *sqldb.Queries) error {
		return q.MarkDeleted(ctx, sqldb.MarkDeletedParams{Uid: uid, DeletedAt: nullMicros(at)})
	})
	if err != nil {
		return fmt.Errorf("archive: mark %s deleted: %w", uid, err)
	}
	return nil
}

// validText replaces what either database rejects in text from a robot. A rejected text would keep
// its job out of the archive forever.
func validText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func nullMicros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func timeOf(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
