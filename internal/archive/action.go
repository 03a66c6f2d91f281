package archive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

// CronJobFlow is a kind of which only actions are recorded.
const CronJobFlow Kind = "CronJobFlow"

// Action is a request of a user that created, changed or deleted an object, or tried to.
type Action struct {
	// ID identifies the request: an action with a known ID is not recorded again.
	ID string
	// At is when the API server received the request, by its clock, to the microsecond.
	At time.Time
	// User as whom the request was authorized, and the user who impersonated them. Impersonator is
	// empty if they sent it themselves, or if it is unknown.
	User, Impersonator string
	// Verb of the API: create, update, patch, delete or deletecollection.
	Verb string
	// Kind, Namespace, Name and UID of the object. Name and UID are empty for a deletecollection,
	// and UID if it is unknown.
	Kind                 Kind
	Namespace, Name, UID string
	// NamespaceUID is the UID that the namespace had. Empty: unknown.
	NamespaceUID string
	// Did is what the request asked for, such as pause, or the verb.
	Did string
	// Code is the HTTP status with which the API server answered. 0: unknown; the object was changed.
	Code int
}

// AuditPosition is how far an audit log has been read.
type AuditPosition struct {
	// Log names the log.
	Log string
	// File identifies one of its files. Empty: nothing has been read.
	File string
	// Offset in the file, in bytes.
	Offset int64
}

// actionBytes is what an action takes in the database, with its indexes.
const actionBytes = 768

const (
	// actionShare is the part of Retention.Bytes that actions may take: one in actionShare.
	actionShare = 10
	// MaxActions bounds the actions in any case: requests cost users nothing.
	MaxActions = 1_000_000
)

// RecordActions writes actions, and the position up to which their log was read, in one transaction.
// Actions that were recorded before stay as they are. If position is nil, none is written.
func (s *Store) RecordActions(ctx context.Context, actions []Action, position *AuditPosition) error {
	err := s.inTransaction(ctx, func(q *sqldb.Queries) error {
		for i := range actions {
			if _, err := q.PutAction(ctx, actionRow(&actions[i])); err != nil {
				return fmt.Errorf("%s: %w", actions[i].ID, err)
			}
		}
		if position == nil {
			return nil
		}
		return q.PutAuditPosition(ctx, sqldb.PutAuditPositionParams{Log: position.Log, File: position.File, ByteOffset: position.Offset})
	})
	if err != nil {
		return fmt.Errorf("archive: record actions: %w", err)
	}
	return nil
}

func actionRow(a *Action) sqldb.PutActionParams {
	return sqldb.PutActionParams{
		ID: a.ID, At: a.At.UnixMicro(), Username: validText(a.User), Impersonator: validText(a.Impersonator), Verb: validText(a.Verb),
		Kind: string(a.Kind), Namespace: validText(a.Namespace), NamespaceUid: a.NamespaceUID, Name: validText(a.Name), Uid: a.UID,
		Did: validText(a.Did), Code: int64(a.Code),
	}
}

// FindAuditPosition returns how far a log has been read. Its File is empty for an unknown log.
func (s *Store) FindAuditPosition(ctx context.Context, log string) (AuditPosition, error) {
	q, err := s.readyQueries(ctx)
	if err != nil {
		return AuditPosition{}, err
	}
	row, err := q.AuditPositionOf(ctx, log)
	if errors.Is(err, sql.ErrNoRows) {
		return AuditPosition{Log: log}, nil
	}
	if err != nil {
		return AuditPosition{}, fmt.Errorf("archive: position in the audit log: %w", err)
	}
	return AuditPosition{Log: log, File: row.File, Offset: row.ByteOffset}, nil
}

// ActionFilter selects actions. Its zero value selects all.
type ActionFilter struct {
	// Namespaces that the caller may see. Nil: all; empty: none.
	Namespaces []string
	// NamespaceUID excludes actions in a deleted namespace that had the same name, and those whose
	// NamespaceUID is unknown. Empty: all are included.
	NamespaceUID string
	// Kinds that the caller may see. Nil: all; empty: none.
	Kinds []Kind
	// Name also selects the deletecollections of its kind and namespace.
	Name string
	User string
	// Since and Until bound the time: [Since, Until). Zero: no bound.
	Since, Until time.Time
	// Limit and Cursor are as in Filter.
	Limit  int
	Cursor string
}

const actionColumns = "id, at, username, impersonator, verb, kind, namespace, namespace_uid, name, uid, did, code"

// ListActions returns actions, the last first.
func (s *Store) ListActions(ctx context.Context, f ActionFilter) (Page[Action], error) {
	var w where
	w.requireOneOf("namespace", f.Namespaces)
	w.requireEqual("namespace_uid", f.NamespaceUID)
	if f.Kinds != nil {
		names := []string{}
		for _, k := range f.Kinds {
			names = append(names, string(k))
		}
		w.requireOneOf("kind", names)
	}
	if f.Name != "" {
		w.addTerm("name IN (?, '')", f.Name)
	}
	w.requireEqual("username", f.User)
	w.requireTime("at", f.Since, f.Until)
	if err := w.requireAfterCursor(f.Cursor, "at", "id"); err != nil {
		return Page[Action]{}, err
	}
	n := pageLimit(f.Limit)
	all, err := queryRows(ctx, s, "list actions", "SELECT "+actionColumns+" FROM actions"+w.String()+
		" ORDER BY at DESC, id DESC LIMIT "+w.addArg(n+1), w.args, scanAction)
	return newPage(all, n, func(a *Action) string { return encodeCursor(a.At.UnixMicro(), a.ID) }), err
}

func scanAction(rows *sql.Rows) (Action, error) {
	var a Action
	var at int64
	err := rows.Scan(&a.ID, &at, &a.User, &a.Impersonator, &a.Verb, &a.Kind, &a.Namespace, &a.NamespaceUID, &a.Name, &a.UID, &a.Did, &a.Code)
	a.At = time.UnixMicro(at).UTC()
	return a, err
}

// pruneActions removes up to a batch of actions: those before the cutoff, or if there are too many, the
// oldest of the namespace that has most. So a user who sends many requests removes no records of others.
func (s *Store) pruneActions(ctx context.Context, q *sqldb.Queries, r Retention, cutoff time.Time) (int64, error) {
	if r.Age > 0 {
		n, err := q.PruneActions(ctx, sqldb.PruneActionsParams{At: cutoff.UnixMicro(), Limit: s.pruneBatch})
		if err != nil || n > 0 {
			return n, err
		}
	}
	n, err := q.CountActions(ctx)
	if err != nil {
		return 0, err
	}
	limit := s.maxActions
	if r.Bytes > 0 {
		limit = min(limit, r.Bytes/actionShare/actionBytes)
	}
	if n <= limit {
		return 0, nil
	}
	most, err := q.NamespaceWithMostActions(ctx)
	if err != nil {
		return 0, err
	}
	// All of the namespace's excess at once could leave it with less than another one has.
	return q.PruneNamespaceActions(ctx, sqldb.PruneNamespaceActionsParams{Namespace: most, Limit: int32(min(n-limit, int64(s.pruneBatch)))})
}
