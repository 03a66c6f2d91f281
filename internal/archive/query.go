package archive

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s4r.io/k8s4r/internal/archive/sqldb"
)

// Page is a part of the results of a query.
type Page[T any] struct {
	Items []T
	// Next is the cursor of the next page. Empty: this is the last one.
	Next string
}

// Filter selects objects. Its zero value selects all.
type Filter struct {
	// Namespaces that the caller may see. Nil: all; empty: none.
	Namespaces []Namespace
	// Namespace selects those of the name. Empty: any.
	Namespace string
	Kind      Kind
	Name      string
	// Prefix of the name.
	Prefix string
	// Owner is the UID of the controller of the objects.
	Owner string
	// Labels that an object must all have.
	Labels   map[string]string
	Phase    string
	Outcome  Outcome
	Template string
	Robot    string
	// User who created the objects, by the recorded actions.
	User string
	// Since and Until bound when an object was created: [Since, Until).
	Since, Until time.Time
	// Limit of the page. 0 means DefaultLimit; it is never more than MaxLimit.
	Limit int
	// Cursor from the previous page. Empty: the first page.
	Cursor string
}

const objectColumns = `o.uid, o.kind, o.namespace, o.name, o.version, o.owner_uid, o.template, o.step, o.robot, o.phase, o.reason, o.outcome,
	o.created_at, o.started_at, o.finished_at, o.deleted_at, o.namespace_uid`

// List returns objects without their manifests, labels and attempts, the last created first.
func (s *Store) List(ctx context.Context, f Filter) (Page[Object], error) {
	n := pageLimit(f.Limit)
	named, picked, err := s.selectByIndex(ctx, &f)
	if err != nil {
		return Page[Object]{}, err
	}
	var all []Object
	for _, namespaces := range groupNamespaces(f.Namespaces) {
		w := where{terms: slices.Clone(named.terms), args: slices.Clone(named.args), opaque: picked}
		some, err := s.listNamespaces(ctx, w, &f, namespaces, n+1)
		if err != nil {
			return Page[Object]{}, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b Object) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.UID, a.UID)) })
	return newPage(all, n, func(o *Object) string { return encodeCursor(o.Created.UnixMicro(), o.UID) }), nil
}

// listNamespaces returns up to most objects of the namespaces that meet the conditions.
func (s *Store) listNamespaces(ctx context.Context, w where, f *Filter, namespaces []Namespace, most int) ([]Object, error) {
	order := "o.created_at"
	if w.opaque {
		order = "o.created_at + 0"
	}
	w.requireEqual("o.kind", string(f.Kind))
	w.requireNamespaces("o.", namespaces)
	w.requireEqual("o.namespace", f.Namespace)
	w.requireEqual("o.name", f.Name)
	w.requireEqual("o.owner_uid", f.Owner)
	w.requireEqual("o.phase", f.Phase)
	w.requireEqual("o.outcome", string(f.Outcome))
	w.requireEqual("o.template", f.Template)
	w.requireEqual("o.robot", f.Robot)
	w.requireTime("o.created_at", f.Since, f.Until)
	if err := w.requireAfterCursor(f.Cursor, "o.created_at", "o.uid"); err != nil {
		return nil, err
	}
	return queryRows(ctx, s, "list", `SELECT `+objectColumns+` FROM objects o`+w.String()+
		` ORDER BY `+order+` DESC, o.uid DESC LIMIT `+w.addArg(most), w.args, scanObject)
}

// selectByIndex returns the conditions on names, labels and the user. If picked, they leave only a few
// objects, which are then read one by one.
func (s *Store) selectByIndex(ctx context.Context, f *Filter) (w where, picked bool, err error) {
	if f.Prefix != "" {
		picked, err = s.addSelective(ctx, &w, "SELECT n.uid FROM objects n WHERE n.name >= ? AND n.name < ?", "o.name >= ? AND o.name < ?", f.Prefix, f.Prefix+"\U0010ffff")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		if err != nil {
			return w, false, err
		}
		var few bool
		few, err = s.addSelective(ctx, &w, "SELECT l.uid FROM labels l WHERE l.name = ? AND l.value = ?",
			"EXISTS (SELECT 1 FROM labels l WHERE l.uid = o.uid AND l.name = ? AND l.value = ?)", name, f.Labels[name])
		picked = picked || few
	}
	if f.User != "" && err == nil {
		var few bool
		few, err = s.addSelective(ctx, &w, createdBy, createdByFilter, f.User)
		picked = picked || few
	}
	return w, picked, err
}

// Few is the number of objects up to which it is faster to read the matching ones than to scan
// all, the last created first.
const Few = 5000

// addSelective adds a condition that a few objects meet, or nearly all; SQLite does not know
// which in advance. uids selects the objects, filter tests one of them.
func (s *Store) addSelective(ctx context.Context, w *where, uids, filter string, values ...any) (few bool, err error) {
	var count where
	text := "SELECT count(*) FROM (" + count.fillValues(uids, values...) + " LIMIT " + count.addArg(s.few+1) + ") found"
	n, err := queryRows(ctx, s, "count", text, count.args, func(rows *sql.Rows) (n int, err error) {
		err = rows.Scan(&n)
		return n, err
	})
	if err != nil {
		return false, err
	}
	if n[0] <= s.few {
		w.addTerm("o.uid IN ("+uids+")", values...)
		return true, nil
	}
	w.addTerm(filter, values...)
	return false, nil
}

// CursorAfter returns the cursor with which List continues after an object of that time and UID.
func CursorAfter(created time.Time, uid string) string { return encodeCursor(created.UnixMicro(), uid) }

// GetByUID returns an object with everything that is kept of it. Namespaces are those that the
// caller may see: nil is all. An object in another namespace is ErrNotFound.
func (s *Store) GetByUID(ctx context.Context, namespaces []Namespace, uid string) (Object, error) {
	var w where
	w.addTerm("o.uid = ?", uid)
	w.requireNamespaces("o.", namespaces)
	return s.queryOne(ctx, w.String(), w.args)
}

// FindByName returns the object that has the name, or had it last, with everything that is kept
// of it. Namespaces are those that the caller may see: nil is all.
func (s *Store) FindByName(ctx context.Context, namespaces []Namespace, kind Kind, namespace, name string) (Object, error) {
	var w where
	w.addTerm("o.name = ?", name)
	w.opaque = true
	w.requireNamespaces("o.", namespaces)
	w.requireEqual("o.kind", string(kind))
	w.requireEqual("o.namespace", namespace)
	return s.queryOne(ctx, w.String()+" ORDER BY o.created_at + 0 DESC, o.uid DESC LIMIT 1", w.args)
}

func (s *Store) queryOne(ctx context.Context, rest string, args []any) (Object, error) {
	all, err := queryRows(ctx, s, "get", "SELECT "+objectColumns+", o.manifest FROM objects o"+rest, args, scanWhole)
	if err != nil {
		return Object{}, err
	}
	if len(all) == 0 {
		return Object{}, fmt.Errorf("archive: get: %w", ErrNotFound)
	}
	o := all[0]
	q, err := s.readyQueries(ctx)
	if err != nil {
		return Object{}, err
	}
	labels, err := q.LabelsOf(ctx, o.UID)
	if err != nil {
		return Object{}, fmt.Errorf("archive: get labels: %w", err)
	}
	for _, l := range labels {
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[l.Name] = l.Value
	}
	attempts, err := q.AttemptsOf(ctx, o.UID)
	if err != nil {
		return Object{}, fmt.Errorf("archive: get attempts: %w", err)
	}
	for i := range attempts {
		o.Attempts = append(o.Attempts, attemptOf(&attempts[i]))
	}
	return o, nil
}

// ListTransitions returns the transitions of an object in the order in which they were recorded.
// Some times are by a robot's clock, so they may seem to be in another order.
func (s *Store) ListTransitions(ctx context.Context, uid string) ([]Transition, error) {
	q, err := s.readyQueries(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := q.TransitionsOf(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("archive: get transitions: %w", err)
	}
	out := make([]Transition, len(rows))
	for i, r := range rows {
		out[i] = Transition{Version: r.Version, At: time.UnixMicro(r.At).UTC(), From: r.FromPhase, To: r.ToPhase, Reason: r.Reason}
	}
	return out, nil
}

// RobotHistory selects what ran on a robot.
type RobotHistory struct {
	// Namespaces that the caller may see. Nil: all; empty: none.
	Namespaces []Namespace
	// Namespace selects tasks in those of the name. Empty: any.
	Namespace string
	// Robot by its id.
	Robot string
	// Since and Until bound the time: attempts that ran at any moment of [Since, Until). Zero: no
	// bound.
	Since, Until time.Time
	// Limit and Cursor are as in Filter.
	Limit  int
	Cursor string
}

// ListRobotAttempts returns the attempts that ran on a robot, the last started first. An attempt
// without an end counts as running.
func (s *Store) ListRobotAttempts(ctx context.Context, h RobotHistory) (Page[Attempt], error) {
	var w where
	w.addTerm("robot = ?", h.Robot)
	w.addTerm("started_at IS NOT NULL")
	w.requireNamespaces("", h.Namespaces)
	w.requireEqual("namespace", h.Namespace)
	if !h.Until.IsZero() {
		w.addTerm("started_at < ?", h.Until.UnixMicro())
	}
	if !h.Since.IsZero() {
		w.addTerm("(finished_at IS NULL OR finished_at >= ?)", h.Since.UnixMicro())
	}
	if err := w.requireAfterCursor(h.Cursor, "started_at", "task_uid", "attempt"); err != nil {
		return Page[Attempt]{}, err
	}
	n := pageLimit(h.Limit)
	all, err := queryRows(ctx, s, "list attempts of a robot", `SELECT task_uid, attempt, namespace, task, job, template, step, robot, state, reason, failed,
	exit_code, signal, run_count, started_at, finished_at, log FROM attempts`+w.String()+
		` ORDER BY started_at DESC, task_uid DESC, attempt DESC LIMIT `+w.addArg(n+1), w.args, scanAttempt)
	return newPage(all, n, func(a *Attempt) string { return encodeCursor(a.Started.UnixMicro(), a.TaskUID, a.Number) }), err
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// queryRows runs a statement and scans all rows. what names the query in errors.
func queryRows[T any](ctx context.Context, s *Store, what, text string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if _, err := s.readyQueries(ctx); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, fmt.Errorf("archive: %s: %w", what, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err returned the error
	var all []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("archive: %s: %w", what, err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("archive: %s: %w", what, err)
	}
	return all, nil
}

// newPage cuts off the item that was read only to find out whether there are more.
func newPage[T any](all []T, n int, next func(*T) string) Page[T] {
	if len(all) <= n {
		return Page[T]{Items: all}
	}
	return Page[T]{Items: all[:n], Next: next(&all[n-1])}
}

func scanObject(rows *sql.Rows) (Object, error) { return scanColumns(rows) }

func scanWhole(rows *sql.Rows) (Object, error) {
	var manifest string
	o, err := scanColumns(rows, &manifest)
	o.Manifest = json.RawMessage(manifest)
	return o, err
}

// scanColumns scans objectColumns, and the columns after them into more.
func scanColumns(rows *sql.Rows, more ...any) (Object, error) {
	var o Object
	var created int64
	var started, finished, deleted sql.NullInt64
	err := rows.Scan(append([]any{
		&o.UID, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Owner, &o.Template, &o.Step, &o.Robot, &o.Phase, &o.Reason, &o.Outcome,
		&created, &started, &finished, &deleted, &o.NamespaceUID,
	}, more...)...)
	o.Created, o.Started, o.Finished, o.Deleted = time.UnixMicro(created).UTC(), timeOf(started), timeOf(finished), timeOf(deleted)
	return o, err
}

func scanAttempt(rows *sql.Rows) (Attempt, error) {
	var a sqldb.Attempt
	err := rows.Scan(&a.TaskUid, &a.Attempt, &a.Namespace, &a.Task, &a.Job, &a.Template, &a.Step, &a.Robot, &a.State, &a.Reason, &a.Failed,
		&a.ExitCode, &a.Signal, &a.RunCount, &a.StartedAt, &a.FinishedAt, &a.Log)
	return attemptOf(&a), err
}

func attemptOf(a *sqldb.Attempt) Attempt {
	out := Attempt{
		TaskUID: a.TaskUid, Namespace: a.Namespace, Task: a.Task, Job: a.Job, Template: a.Template, Step: a.Step, Number: a.Attempt,
		Robot: a.Robot, State: a.State, Reason: a.Reason, Failed: a.Failed == 1, Signal: a.Signal, RunCount: a.RunCount,
		Started: timeOf(a.StartedAt), Finished: timeOf(a.FinishedAt), Log: a.Log,
	}
	if a.ExitCode.Valid {
		out.ExitCode = &a.ExitCode.Int64
	}
	return out
}
