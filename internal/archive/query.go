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

// Page is some of what a query finds.
type Page[T any] struct {
	Items []T
	// Next is the cursor of what follows. Empty: this was all.
	Next string
}

// Filter chooses objects. Its zero value chooses all.
type Filter struct {
	// Namespaces that the reader may see. Nil: all; empty: none.
	Namespaces []string
	Kind       Kind
	Name       string
	// Prefix that names begin with.
	Prefix string
	// Owner is the UID of the controller of what is looked for.
	Owner string
	// Labels that an object must all have.
	Labels   map[string]string
	Phase    string
	Outcome  Outcome
	Template string
	Robot    string
	// Since and Until bound when an object was created: [Since, Until).
	Since, Until time.Time
	// Limit of the page. 0 means DefaultLimit; it is never more than MaxLimit.
	Limit int
	// Cursor of the page before. Empty: the first.
	Cursor string
}

const objectColumns = `o.uid, o.kind, o.namespace, o.name, o.version, o.owner_uid, o.template, o.step, o.robot, o.phase, o.reason, o.outcome,
	o.created_at, o.started_at, o.finished_at, o.deleted_at`

// List finds objects, the last created first, without their manifests, labels and attempts.
func (s *Store) List(ctx context.Context, f Filter) (Page[Object], error) {
	n := limit(f.Limit)
	named, picked, err := s.pick(ctx, &f)
	if err != nil {
		return Page[Object]{}, err
	}
	var all []Object
	for _, namespaces := range apart(f.Namespaces) {
		w := where{terms: slices.Clone(named.terms), args: slices.Clone(named.args), opaque: picked}
		some, err := s.list(ctx, w, &f, namespaces, n+1)
		if err != nil {
			return Page[Object]{}, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b Object) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.UID, a.UID)) })
	return page(all, n, func(o *Object) string { return cursor(o.Created.UnixMicro(), o.UID) }), nil
}

// list finds the first so many objects of the namespaces that meet the conditions.
func (s *Store) list(ctx context.Context, w where, f *Filter, namespaces []string, most int) ([]Object, error) {
	order := "o.created_at"
	if w.opaque {
		order = "o.created_at + 0"
	}
	w.is("o.kind", string(f.Kind))
	w.among("o.namespace", namespaces)
	w.is("o.name", f.Name)
	w.is("o.owner_uid", f.Owner)
	w.is("o.phase", f.Phase)
	w.is("o.outcome", string(f.Outcome))
	w.is("o.template", f.Template)
	w.is("o.robot", f.Robot)
	w.within("o.created_at", f.Since, f.Until)
	if err := w.before(f.Cursor, "o.created_at", "o.uid"); err != nil {
		return nil, err
	}
	return collect(ctx, s, "list", `SELECT `+objectColumns+` FROM objects o`+w.String()+
		` ORDER BY `+order+` DESC, o.uid DESC LIMIT `+w.arg(most), w.args, scanObject)
}

// pick has the conditions on names and labels. It tells whether they leave only a few objects,
// which are to be looked at alone.
func (s *Store) pick(ctx context.Context, f *Filter) (w where, picked bool, err error) {
	if f.Prefix != "" {
		picked, err = s.narrow(ctx, &w, "SELECT n.uid FROM objects n WHERE n.name >= ? AND n.name < ?", "o.name >= ? AND o.name < ?", f.Prefix, f.Prefix+"\U0010ffff")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		if err != nil {
			return w, false, err
		}
		var few bool
		few, err = s.narrow(ctx, &w, "SELECT l.uid FROM labels l WHERE l.name = ? AND l.value = ?",
			"EXISTS (SELECT 1 FROM labels l WHERE l.uid = o.uid AND l.name = ? AND l.value = ?)", name, f.Labels[name])
		picked = picked || few
	}
	return w, picked, err
}

// Few is how many objects are still better found by what is looked for than by looking through
// all, the last created first.
const Few = 5000

// narrow adds a condition that a few objects meet, or nearly all: SQLite does not know which
// beforehand. uids selects them, filter tells of one whether it is among them.
func (s *Store) narrow(ctx context.Context, w *where, uids, filter string, values ...any) (few bool, err error) {
	var count where
	text := "SELECT count(*) FROM (" + count.fill(uids, values...) + " LIMIT " + count.arg(s.few+1) + ") found"
	n, err := collect(ctx, s, "count", text, count.args, func(rows *sql.Rows) (n int, err error) {
		err = rows.Scan(&n)
		return n, err
	})
	if err != nil {
		return false, err
	}
	if n[0] <= s.few {
		w.and("o.uid IN ("+uids+")", values...)
		return true, nil
	}
	w.and(filter, values...)
	return false, nil
}

// Before is the cursor of what List has after an object of that time and UID.
func Before(created time.Time, uid string) string { return cursor(created.UnixMicro(), uid) }

// Get finds one object by its UID, with all that is kept of it. namespaces are those that the
// reader may see: nil is all. One in another namespace is ErrNotFound.
func (s *Store) Get(ctx context.Context, namespaces []string, uid string) (Object, error) {
	var w where
	w.and("o.uid = ?", uid)
	w.among("o.namespace", namespaces)
	return s.one(ctx, w.String(), w.args)
}

// Find finds the object that bears the name, or bore it last, with all that is kept of it.
func (s *Store) Find(ctx context.Context, kind Kind, namespace, name string) (Object, error) {
	var w where
	w.and("o.name = ?", name)
	w.opaque = true
	w.is("o.kind", string(kind))
	w.is("o.namespace", namespace)
	return s.one(ctx, w.String()+" ORDER BY o.created_at + 0 DESC, o.uid DESC LIMIT 1", w.args)
}

func (s *Store) one(ctx context.Context, rest string, args []any) (Object, error) {
	all, err := collect(ctx, s, "get", "SELECT "+objectColumns+", o.manifest FROM objects o"+rest, args, scanWhole)
	if err != nil {
		return Object{}, err
	}
	if len(all) == 0 {
		return Object{}, fmt.Errorf("archive: get: %w", ErrNotFound)
	}
	o := all[0]
	q, err := s.queries(ctx)
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

// Transitions of an object, the oldest first, in the order in which they happened: by their
// times, some of which are by a robot's clock, they may seem to be in another.
func (s *Store) Transitions(ctx context.Context, uid string) ([]Transition, error) {
	q, err := s.queries(ctx)
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

// RobotHistory asks what ran on a robot.
type RobotHistory struct {
	// Namespaces that the reader may see. Nil: all; empty: none.
	Namespaces []string
	// Robot by its id.
	Robot string
	// Since and Until bound the time: what ran at any moment of [Since, Until). Zero: no
	// bound.
	Since, Until time.Time
	// Limit and Cursor are as in Filter.
	Limit  int
	Cursor string
}

// RanOn finds the attempts that ran on a robot, the last started first. One whose end is not
// known counts as running still.
func (s *Store) RanOn(ctx context.Context, h RobotHistory) (Page[Attempt], error) {
	var w where
	w.and("robot = ?", h.Robot)
	w.and("started_at IS NOT NULL")
	w.among("namespace", h.Namespaces)
	if !h.Until.IsZero() {
		w.and("started_at < ?", h.Until.UnixMicro())
	}
	if !h.Since.IsZero() {
		w.and("(finished_at IS NULL OR finished_at >= ?)", h.Since.UnixMicro())
	}
	if err := w.before(h.Cursor, "started_at", "task_uid", "attempt"); err != nil {
		return Page[Attempt]{}, err
	}
	n := limit(h.Limit)
	all, err := collect(ctx, s, "what ran on a robot", `SELECT task_uid, attempt, namespace, task, job, template, step, robot, state, reason, failed,
	exit_code, signal, started_at, finished_at, log FROM attempts`+w.String()+
		` ORDER BY started_at DESC, task_uid DESC, attempt DESC LIMIT `+w.arg(n+1), w.args, scanAttempt)
	return page(all, n, func(a *Attempt) string { return cursor(a.Started.UnixMicro(), a.TaskUID, a.Number) }), err
}

func micro(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// collect runs a statement and scans all of its rows. What says what was asked for.
func collect[T any](ctx context.Context, s *Store, what, text string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if _, err := s.queries(ctx); err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, fmt.Errorf("archive: %s: %w", what, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err has said what went wrong
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

// page cuts off what was only read to see whether there is more.
func page[T any](all []T, n int, next func(*T) string) Page[T] {
	if len(all) <= n {
		return Page[T]{Items: all}
	}
	return Page[T]{Items: all[:n], Next: next(&all[n-1])}
}

func scanObject(rows *sql.Rows) (Object, error) { return scan(rows) }

func scanWhole(rows *sql.Rows) (Object, error) {
	var manifest string
	o, err := scan(rows, &manifest)
	o.Manifest = json.RawMessage(manifest)
	return o, err
}

// scan reads objectColumns, and what follows them into more.
func scan(rows *sql.Rows, more ...any) (Object, error) {
	var o Object
	var created int64
	var started, finished, deleted sql.NullInt64
	err := rows.Scan(append([]any{
		&o.UID, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Owner, &o.Template, &o.Step, &o.Robot, &o.Phase, &o.Reason, &o.Outcome,
		&created, &started, &finished, &deleted,
	}, more...)...)
	o.Created, o.Started, o.Finished, o.Deleted = time.UnixMicro(created).UTC(), moment(started), moment(finished), moment(deleted)
	return o, err
}

func scanAttempt(rows *sql.Rows) (Attempt, error) {
	var a sqldb.Attempt
	err := rows.Scan(&a.TaskUid, &a.Attempt, &a.Namespace, &a.Task, &a.Job, &a.Template, &a.Step, &a.Robot, &a.State, &a.Reason, &a.Failed,
		&a.ExitCode, &a.Signal, &a.StartedAt, &a.FinishedAt, &a.Log)
	return attemptOf(&a), err
}

func attemptOf(a *sqldb.Attempt) Attempt {
	out := Attempt{
		TaskUID: a.TaskUid, Namespace: a.Namespace, Task: a.Task, Job: a.Job, Template: a.Template, Step: a.Step, Number: a.Attempt,
		Robot: a.Robot, State: a.State, Reason: a.Reason, Failed: a.Failed == 1, Signal: a.Signal,
		Started: moment(a.StartedAt), Finished: moment(a.FinishedAt), Log: a.Log,
	}
	if a.ExitCode.Valid {
		out.ExitCode = &a.ExitCode.Int64
	}
	return out
}
