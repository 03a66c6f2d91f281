package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/actions"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// indexSelector selects indexes of an array of a Job.
type indexSelector struct {
	text, group string

	indexes indexset.Set
}

func (s *indexSelector) addFlags(f *pflag.FlagSet, usage string) {
	f.StringVar(&s.text, "index", "", usage)
	f.StringVar(&s.group, "group", "", "task group of the index, if several groups of the Job have it")
}

func (s *indexSelector) isSet() bool { return s.text != "" }

// parse validates the flags. It accepts at most this many indexes.
func (s *indexSelector) parse(most int) (err error) {
	if s.indexes, err = indexset.Parse(s.text); err != nil {
		return usagef("--index=%s: %w", shortenText(s.text, 40), err)
	}
	switch {
	case s.indexes.Len() > most && most == 1:
		return usagef("--index=%s: must be one index, such as 17", shortenText(s.text, 40))
	case s.indexes.Len() > most:
		return usagef("--index=%s: has %d indexes; the maximum is %d", shortenText(s.text, 40), s.indexes.Len(), most)
	case s.group != "" && !s.isSet():
		return usagef("--group: requires --index")
	}
	return nil
}

// jobParts are a Job with its groups, in their order, and its tasks, sorted by name.
type jobParts struct {
	job    *robotv1.Job
	groups []*robotv1.TaskGroup
	tasks  []*robotv1.Task
}

func readJobParts(ctx context.Context, c *cluster, job *robotv1.Job) (p jobParts, err error) {
	p.job = job
	groups, err := listObjects(ctx, c, groupKind, inJob(job)...)
	if err != nil {
		return p, err
	}
	p.groups = groupsOf(job, groups)
	p.tasks, err = listTasks(ctx, c, job)
	return p, err
}

// findIndexes returns what the Job's objects say about the selected indexes. More than one group may
// have an index.
func (s *indexSelector) findIndexes(ctx context.Context, c *cluster, job *robotv1.Job) (views []array.View, err error) {
	p, err := readJobParts(ctx, c, job)
	if err != nil {
		return nil, err
	}
	for i := range s.indexes.All() {
		found := slices.DeleteFunc(array.FindIndex(p.groups, p.tasks, i), func(v array.View) bool {
			return s.group != "" && v.Group.Spec.GroupName != s.group
		})
		if len(found) == 0 {
			return nil, s.missingError(p, i)
		}
		views = append(views, found...)
	}
	return views, nil
}

func (s *indexSelector) missingError(p jobParts, index int32) error {
	var have []string
	for _, g := range p.groups {
		if g.Spec.Array == nil {
			continue
		}
		if all, err := array.Indexes(g.Spec.Array); err == nil {
			have = append(have, fmt.Sprintf("group %s has %s", g.Spec.GroupName, array.ShortenSet(all)))
		}
	}
	if len(have) == 0 {
		return fmt.Errorf("job %s has no array", p.job.Name)
	}
	return fmt.Errorf("no array of job %s has index %d: %s", p.job.Name, index, strings.Join(have, ", "))
}

// findOne returns a Job and what is known about one of its indexes. It returns an error if several
// groups have the index.
func (s *indexSelector) findOne(ctx context.Context, c *cluster, name string) (*robotv1.Job, array.View, error) {
	found, err := resolveName(ctx, c, jobKind, name)
	if err != nil {
		return nil, array.View{}, err
	}
	job := found.(*robotv1.Job)
	views, err := s.findIndexes(ctx, c, job)
	if err != nil {
		return nil, array.View{}, err
	}
	return job, views[0], checkOneGroup(views)
}

// checkOneGroup returns an error if the indexes belong to several groups.
func checkOneGroup(views []array.View) error {
	var groups []string
	for _, v := range views {
		groups = append(groups, v.Group.Spec.GroupName)
	}
	slices.Sort(groups)
	if groups = slices.Compact(groups); len(groups) > 1 {
		return fmt.Errorf("several groups have index %d: select one of %s with --group", views[0].Index, actions.SummarizeNames(groups))
	}
	return nil
}

// renderIndexes returns the Tasks of indexes. Those without a Task of their own are rendered from
// their ranges.
func renderIndexes(job *robotv1.Job, views []array.View) []client.Object {
	out := make([]client.Object, len(views))
	for i, v := range views {
		out[i] = v.Render(job)
	}
	return out
}
