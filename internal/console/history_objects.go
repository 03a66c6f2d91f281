package console

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s4r.io/k8s4r/internal/console/row"
)

// historyKinds are the kinds of what runs and is archived. Robots do not run.
var historyKinds = []row.Kind{row.Jobs, row.TaskGroups, row.Tasks, row.JobFlows, row.VCJobs, row.RayClusters}

type historyIn struct {
	Kind      string `query:"kind" enum:"jobs,taskgroups,tasks,jobflows,vcjobs,rayclusters" doc:"If empty, all kinds that the caller can list"`
	Namespace string `query:"namespace" doc:"If empty, all namespaces that the caller can see"`
	State     string `query:"state" maxLength:"64"`
	Query     string `query:"q" maxLength:"200" doc:"Beginning of the name"`
	Robot     string `query:"robot" maxLength:"253" doc:"Last robot of a task"`
	Template  string `query:"template" maxLength:"253"`
	User      string `query:"user" maxLength:"253" doc:"Who created the object. What controllers created has no user"`
	Since     string `query:"since" doc:"Created at this time or later, RFC 3339"`
	Until     string `query:"until" doc:"Created before this time, RFC 3339"`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Continue  string `query:"continue" doc:"From the previous page"`
}

type historyPage struct {
	Items []*row.Row `json:"items"`
	// Continue is the cursor of the next page. If empty, this page is the last.
	Continue string `json:"continue,omitempty"`
}

// listHistory lists live and archived objects of all kinds, the last created first.
func (s *Server) listHistory(ctx context.Context, in *historyIn) (*historyPage, error) {
	if s.archive == nil {
		return nil, errNoArchive
	}
	kinds := historyKinds
	if in.Kind != "" {
		kinds = []row.Kind{row.Kind(in.Kind)}
	}
	created, err := s.findCreated(ctx, in.User)
	if err != nil {
		return nil, err
	}
	var pages []*page
	var denied error
	for _, k := range kinds {
		p, err := s.listKindHistory(ctx, k, in, created)
		switch {
		case apierrors.IsForbidden(err):
			denied = err
		case err != nil:
			return nil, err
		default:
			pages = append(pages, p)
		}
	}
	if len(pages) == 0 {
		return nil, denied
	}
	out, err := mergePages(pages, in.Limit)
	if err != nil {
		return nil, err
	}
	return out, s.addCreators(ctx, out.Items)
}

// findCreated returns the UIDs of what a user created, or nil for everything.
func (s *Server) findCreated(ctx context.Context, user string) (map[string]bool, error) {
	if user == "" {
		return nil, nil
	}
	uids, err := s.archive.ListCreatedBy(ctx, user)
	created := map[string]bool{}
	for _, uid := range uids {
		created[uid] = true
	}
	return created, err
}

func (s *Server) listKindHistory(ctx context.Context, k row.Kind, in *historyIn, created map[string]bool) (*page, error) {
	list := &listIn{
		Kind: k, Namespace: in.Namespace, Robot: in.Robot, Template: in.Template, Since: in.Since, Until: in.Until,
		Scope: "all", Sort: "-created", Limit: in.Limit, Continue: in.Continue, user: in.User,
	}
	if in.State != "" {
		list.State = []string{in.State}
	}
	sees, err := s.findScope(ctx, k, in.Namespace)
	if err != nil {
		return nil, err
	}
	matches, err := list.newMatcher()
	if err != nil {
		return nil, err
	}
	list.Query = in.Query // the archive has only the beginning of names, so live objects are found by it, too
	return s.listMerged(ctx, list, sees, func(r *row.Row) bool {
		return (created == nil || created[r.UID]) && strings.HasPrefix(r.Name, in.Query) && matches(r)
	})
}

// mergePages returns the first limit rows of the pages of several kinds. A page that is not the last of its
// kind ends what is known: the next page of that kind may have rows before those of the others.
func mergePages(pages []*page, limit int) (*historyPage, error) {
	out := &historyPage{Items: []*row.Row{}}
	for _, p := range pages {
		out.Items = append(out.Items, p.Items...)
	}
	slices.SortFunc(out.Items, compareNewestFirst)
	var last *row.Row
	for _, p := range pages {
		if p.Continue == "" {
			continue
		}
		end, err := decodeCursor(p.Continue)
		if err != nil {
			return nil, err
		}
		if last == nil || compareNewestFirst(end, last) < 0 {
			last = end
		}
	}
	if last != nil {
		out.Items = removeAfter(out.Items, last)
	}
	if len(out.Items) > limit {
		out.Items, last = out.Items[:limit], out.Items[limit-1]
	}
	if last != nil {
		out.Continue = encodeCursor(last)
	}
	return out, nil
}

// addCreators replaces rows by copies that name the users who created the objects.
func (s *Server) addCreators(ctx context.Context, rows []*row.Row) error {
	names := map[string]string{}
	for _, r := range rows {
		names[r.UID] = r.Name
	}
	users, err := s.archive.FindCreators(ctx, names)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if user := users[r.UID]; user != "" {
			named := *r
			named.User = user
			rows[i] = &named
		}
	}
	return nil
}
