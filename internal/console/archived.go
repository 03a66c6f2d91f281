package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/archive"
	"k8s4r.io/k8s4r/internal/console/row"
)

// errNoArchive is returned if the console has no archive.
var errNoArchive = apierrors.NewServiceUnavailable("there is no archive: start the manager and the console with --archive")

// listMerged lists archived objects, and live ones if the scope is all, sorted by creation time
// from newest to oldest.
func (s *Server) listMerged(ctx context.Context, in *listIn, sees scope, matches func(*row.Row) bool) (*page, error) {
	f, err := s.newArchiveFilter(ctx, in, sees)
	if err != nil {
		return nil, err
	}
	old, err := s.archive.List(ctx, f)
	if err != nil {
		return nil, toCursorError(err)
	}
	var rows []*row.Row
	if in.Scope == "all" {
		if rows, err = s.listLiveAfterCursor(in, sees, matches); err != nil {
			return nil, err
		}
	}
	for i := range old.Items {
		if r := newArchivedRow(&old.Items[i]); !s.isLive(r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, compareNewestFirst)
	if old.Next != "" { // the archive may have more objects between the live ones after its last item
		rows = removeAfter(rows, newArchivedRow(&old.Items[len(old.Items)-1]))
	}
	return cutPage(rows, in.Limit, old), nil
}

// isLive reports whether the API server still has the object of an archived row.
func (s *Server) isLive(r *row.Row) bool {
	i := s.store.Get(r.Kind, r.Namespace, r.Name)
	return i != nil && i.Row.UID == r.UID
}

// listLiveAfterCursor returns the live rows that follow the previous page.
func (s *Server) listLiveAfterCursor(in *listIn, sees scope, matches func(*row.Row) bool) ([]*row.Row, error) {
	rows := s.findRows(in.Kind, in.Namespace, sees, matches)
	if in.Continue == "" {
		return rows, nil
	}
	last, err := decodeCursor(in.Continue)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(r *row.Row) bool { return compareNewestFirst(r, last) <= 0 }), nil
}

// compareNewestFirst is the sort order of the archive.
func compareNewestFirst(a, b *row.Row) int {
	return cmp.Or(b.Created.Compare(a.Created.Time), cmp.Compare(b.UID, a.UID))
}

// removeAfter removes the rows that sort after last.
func removeAfter(rows []*row.Row, last *row.Row) []*row.Row {
	return slices.DeleteFunc(rows, func(r *row.Row) bool { return compareNewestFirst(r, last) > 0 })
}

// cutPage returns the first limit rows and the cursor of the next page.
func cutPage(rows []*row.Row, limit int, old archive.Page[archive.Object]) *page {
	out := &page{Items: rows[:min(limit, len(rows))]}
	switch {
	case len(rows) > limit:
		out.Continue = encodeCursor(rows[limit-1])
	case old.Next != "":
		out.Continue = encodeCursor(newArchivedRow(&old.Items[len(old.Items)-1]))
	}
	if out.Items == nil {
		out.Items = []*row.Row{}
	}
	return out
}

// newArchiveFilter converts the query into a filter of the archive. It returns a BadRequest that
// names a parameter that the archive does not support.
func (s *Server) newArchiveFilter(ctx context.Context, in *listIn, sees scope) (archive.Filter, error) {
	is := kinds[in.Kind]
	if err := s.checkArchiveSupport(in, is); err != nil {
		return archive.Filter{}, err
	}
	labels, err := parseLabels(in.Label)
	if err != nil {
		return archive.Filter{}, err
	}
	f := archive.Filter{User: in.user, Namespace: in.Namespace, Kind: is.archived, Prefix: in.Query, Labels: labels, Template: in.Template, Robot: in.Robot, Limit: in.Limit}
	if f.Namespaces, err = s.findPastScope(ctx, "list", in.Kind, sees); err != nil {
		return f, err
	}
	if len(in.State) > 0 {
		f.Phase = in.State[0]
	}
	if len(in.Severity) > 0 {
		f.Outcome = outcomes[row.Severity(in.Severity[0])]
	}
	if in.Job != "" {
		labels[v1alpha1.LabelJob] = in.Job
	}
	if f.Since, err = parseTime("since", in.Since); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("until", in.Until); err != nil {
		return f, err
	}
	if in.Continue != "" {
		last, err := decodeCursor(in.Continue)
		if err != nil {
			return f, err
		}
		f.Cursor = archive.CursorAfter(last.Created.Time, last.UID)
	}
	if in.Flow != "" {
		f.Owner, err = s.findFlowUID(ctx, f.Namespaces, in.Namespace, in.Flow)
	}
	return f, err
}

// checkArchiveSupport returns an error for a parameter that the archive does not support.
func (s *Server) checkArchiveSupport(in *listIn, is kind) error {
	no := func(format string, a ...any) error { return apierrors.NewBadRequest(fmt.Sprintf(format, a...)) }
	k := in.Kind
	if s.archive == nil {
		return errNoArchive
	}
	switch {
	case is.archived == "":
		return no("kind %s is not archived; use scope=live", in.Kind)
	case in.Sort != "-created" && in.Sort != "name": // name is the default
		return no("sort=%s: the archive supports only -created", in.Sort)
	case len(in.State) > 1 || len(in.Severity) > 1:
		return no("state, severity: the archive supports at most one value of each")
	case len(in.Severity) == 1 && outcomes[row.Severity(in.Severity[0])] == "":
		return no("severity=%s: the archive supports only good, bad and gone", in.Severity[0])
	}
	return in.checkArchiveOwners(k, no)
}

// checkArchiveOwners returns an error for an owner by which the archive cannot filter.
func (in *listIn) checkArchiveOwners(k row.Kind, no func(string, ...any) error) error {
	switch {
	case in.Group != "":
		return no("group: not supported by the archive; filter by job and q, the beginning of the name")
	case in.Job != "" && k != row.Tasks && k != row.TaskGroups:
		return no("job: the archive supports it only for tasks and taskgroups")
	case in.Flow != "" && (in.Namespace == "" || k != row.Jobs && k != row.VCJobs):
		return no("flow: the archive supports it only for jobs and vcjobs of one namespace")
	}
	return nil
}

// findFlowUID returns the UID of a live flow, or of an archived one in the namespaces.
func (s *Server) findFlowUID(ctx context.Context, namespaces []archive.Namespace, namespace, name string) (string, error) {
	if i := s.store.Get(row.JobFlows, namespace, name); i != nil {
		return i.Row.UID, nil
	}
	o, err := s.archive.FindByName(ctx, namespaces, archive.JobFlow, namespace, name)
	if errors.Is(err, archive.ErrNotFound) {
		return "", apierrors.NewNotFound(kinds[row.JobFlows].version.WithResource("jobflows").GroupResource(), name)
	}
	return o.UID, err
}

func toCursorError(err error) error {
	if errors.Is(err, archive.ErrCursor) {
		return apierrors.NewBadRequest("continue: not from a page of this list; omit it to start with the first page")
	}
	return err
}

// outcomes maps severities to outcomes in the archive.
var outcomes = map[row.Severity]archive.Outcome{row.Good: archive.Succeeded, row.Bad: archive.Failed, row.Gone: archive.Canceled}

func outcomeSeverity(o archive.Outcome) row.Severity {
	for severity, is := range outcomes {
		if is == o {
			return severity
		}
	}
	return row.Gone // deleted before it ended
}

// newArchivedRow returns the row of an archived object.
func newArchivedRow(o *archive.Object) *row.Row {
	return &row.Row{
		Kind: rowKind(o.Kind), Namespace: o.Namespace, Name: o.Name, UID: o.UID, State: cmp.Or(o.Phase, "unknown"), Severity: outcomeSeverity(o.Outcome), Message: o.Reason,
		Created: metav1.NewMicroTime(o.Created), Started: toMicroTime(o.Started), Finished: toMicroTime(cmp.Or(o.Finished, o.Deleted)), Template: o.Template, Step: o.Step,
		Robot: o.Robot, Labels: o.Labels, Job: o.Labels[v1alpha1.LabelJob], Archived: true,
	}
}

func toMicroTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	m := metav1.NewMicroTime(t)
	return &m
}

func fromMicroTime(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
