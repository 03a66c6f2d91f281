package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
)

// revisionKind is the kind of the objects that store revisions.
var revisionKind = kind{"ControllerRevision", "controllerrevisions", "controllerrevision", nil,
	func() client.Object { return &appsv1.ControllerRevision{} }, func() client.ObjectList { return &appsv1.ControllerRevisionList{} }, appsv1.SchemeGroupVersion}

// annotationChangeCause is the annotation, of kubectl, for why a definition was changed. The manager copies
// it from the Job to a new revision.
const annotationChangeCause = "kubernetes.io/change-cause"

// maxRevision bounds the number of a revision, as that of a Rollout.
const maxRevision = 1<<53 - 1

// jobRevisions are the stored revisions of a Job, by ascending number.
type jobRevisions struct {
	job *robotv1.Job
	all []*appsv1.ControllerRevision
}

// readRevisions returns the stored revisions of a Job. It returns an error for a Job that cannot have any.
func readRevisions(ctx context.Context, c client.Reader, job *robotv1.Job) (*jobRevisions, error) {
	if err := checkRevisionType(job); err != nil {
		return nil, err
	}
	opts := []client.ListOption{client.InNamespace(job.Namespace)}
	if len(job.Name) <= maxLabelValue {
		opts = append(opts, client.MatchingLabels{robotv1.LabelPrefixedJob: job.Name})
	}
	found, err := listTyped[*appsv1.ControllerRevision](ctx, c, revisionKind, opts...)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(r *appsv1.ControllerRevision) bool { return !jobrevision.IsOfJob(r, job) })
	slices.SortFunc(found, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return &jobRevisions{job, found}, nil
}

func checkRevisionType(job *robotv1.Job) error {
	if job.Spec.Type == "" || job.Spec.Type == robotv1.JobTypeBatch {
		return fmt.Errorf("job %s is of type batch: only jobs of type service, system and sysbatch have revisions", job.Name)
	}
	return nil
}

// find returns the revision with the number. The error lists the numbers that exist.
func (r *jobRevisions) find(n int64) (*appsv1.ControllerRevision, error) {
	for _, one := range r.all {
		if one.Revision == n {
			return one, nil
		}
	}
	if len(r.all) == 0 {
		return nil, r.noneError()
	}
	return nil, fmt.Errorf("job %s has no revision %d; its revisions are %s", r.job.Name, n, r.listNumbers())
}

func (r *jobRevisions) listNumbers() string {
	numbers := make([]string, len(r.all))
	for i, one := range r.all {
		numbers[i] = strconv.FormatInt(one.Revision, 10)
	}
	return strings.Join(numbers, ", ")
}

func (r *jobRevisions) noneError() error {
	return fmt.Errorf("job %s has no revision yet: the manager records one soon after the Job is created", r.job.Name)
}

// findPrevious returns the newest revision whose content is not that of the Job's spec. Usually it is the one
// before the newest; it is the newest if the manager has not recorded the spec yet.
func (r *jobRevisions) findPrevious() (*appsv1.ControllerRevision, error) {
	spec := jobrevision.ContentOf(&r.job.Spec)
	for _, one := range slices.Backward(r.all) {
		content, err := jobrevision.Decode(one)
		if err != nil {
			return nil, err
		}
		if !apiequality.Semantic.DeepEqual(content, spec) {
			return one, nil
		}
	}
	if len(r.all) == 0 {
		return nil, r.noneError()
	}
	return nil, fmt.Errorf("job %s has only revision %s: there is no earlier one", r.job.Name, r.listNumbers())
}

// recordsSpec reports whether the newest revision is that of the Job's spec.
func (r *jobRevisions) recordsSpec() bool {
	if len(r.all) == 0 {
		return false
	}
	content, err := jobrevision.Decode(r.all[len(r.all)-1])
	return err == nil && apiequality.Semantic.DeepEqual(content, jobrevision.ContentOf(&r.job.Spec))
}

// definition is the content of a revision or of the spec, with its name for a diff.
type definition struct {
	name    string
	content jobrevision.JobContent
}

func (r *jobRevisions) definitionOf(n int64) (definition, error) {
	one, err := r.find(n)
	if err != nil {
		return definition{}, err
	}
	content, err := jobrevision.Decode(one)
	return definition{"revision " + strconv.FormatInt(n, 10), content}, err
}

func (r *jobRevisions) spec() definition {
	return definition{"spec of job " + r.job.Name, jobrevision.ContentOf(&r.job.Spec)}
}

func (d definition) renderYAML() (string, error) {
	text, err := yaml.Marshal(d.content)
	return string(text), wrapError(err, "encode %s", d.name)
}

// parseRevision parses the number of a revision.
func parseRevision(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxRevision {
		return 0, usagef("revision %q: must be a number from 1 to %d; `job history` lists the revisions", text, int64(maxRevision))
	}
	return n, nil
}
