package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/core/jobrevision"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// rolloutDetails describes the progress of a Rollout.
type rolloutDetails struct {
	// Waves are all waves, in order, also those that have not started.
	Waves []waveDetails `json:"waves"`
	// Counts of all units, those of waves that have not started among them.
	Counts unitCounts `json:"counts"`
}

// waveDetails describes a wave.
type waveDetails struct {
	Name string `json:"name"`
	// Includes describes the units, such as 10%, 5 or site=hall.
	Includes string            `json:"includes"`
	State    rollout.WaveState `json:"state"`
	// CanApprove reports whether the wave waits, or will wait, for an approval. The user also needs the verb approve.
	CanApprove bool `json:"canApprove"`
	// Approved is set for waves that needed an approval, and have it.
	Approved bool `json:"approved,omitempty"`
	// Pause is the time between the end of the wave and the start of the next one, such as 1h.
	Pause string `json:"pause,omitempty"`
	// HealthyFor is how long a unit must run until it is updated, if that is longer than its group requires.
	HealthyFor string            `json:"healthyFor,omitempty"`
	Started    *metav1.MicroTime `json:"started,omitempty"`
	Finished   *metav1.MicroTime `json:"finished,omitempty"`
	// WaitingSince is since when the wave waits only for units whose robots are out of contact.
	WaitingSince *metav1.MicroTime `json:"waitingSince,omitempty"`
	Retries      int32             `json:"retries,omitempty"`
	// Counts is nil before the wave has started.
	Counts *unitCounts `json:"counts,omitempty"`
}

// unitCounts counts units by their progress. Each unit is counted once.
type unitCounts struct {
	Total         int32 `json:"total"`
	Updated       int32 `json:"updated"`
	Updating      int32 `json:"updating"`
	Failed        int32 `json:"failed"`
	Waiting       int32 `json:"waiting"`
	OutOfContact  int32 `json:"outOfContact"`
	OutsideWindow int32 `json:"outsideWindow" doc:"Units that wait for a maintenance window"`
	Held          int32 `json:"held" doc:"Units that people at their robots have reserved"`
}

func (s *Server) registerRollouts(api huma.API) {
	addRead(s, api, "/objects/rollouts/{namespace}/{name}/units", "list-units", "Units of a Rollout, failed ones first", s.listUnits)
	addRead(s, api, "/objects/jobs/{namespace}/{name}/revisions", "list-revisions", "Revisions of a job, the newest first", s.listRevisions)
}

func describeRollout(r *v1alpha1.Rollout) *rolloutDetails {
	out := &rolloutDetails{Waves: []waveDetails{}, Counts: newUnitCounts(&r.Status.Counts)}
	for i := range r.Spec.Waves {
		out.Waves = append(out.Waves, describeWave(r, i))
	}
	return out
}

// describeWave describes the wave with the index i in spec.waves.
func describeWave(r *v1alpha1.Rollout, i int) waveDetails {
	w := &r.Spec.Waves[i]
	state := rollout.StateOfWave(r, i)
	out := waveDetails{
		Name: w.Name, Includes: rollout.DescribeIncluded(w), State: state, CanApprove: state == rollout.WaveNeedsApproval,
		Approved: w.Approval == v1alpha1.ApprovalManual && !rollout.NeedsApproval(r, i),
		Pause:    durationText(w.Pause), HealthyFor: durationText(w.HealthyFor),
	}
	if i < len(r.Status.Waves) {
		s := &r.Status.Waves[i]
		out.Started, out.Finished, out.WaitingSince, out.Retries = s.StartedAt, s.FinishedAt, s.WaitingSince, s.Retries
		out.Counts = new(newUnitCounts(&s.RolloutCounts))
	}
	return out
}

func durationText(d *v1alpha1.Duration) string {
	if d == nil {
		return ""
	}
	return string(*d)
}

func newUnitCounts(c *v1alpha1.RolloutCounts) unitCounts {
	return unitCounts{
		Total: c.Total, Updated: c.Updated, Updating: c.Updating, Failed: c.Failed, Waiting: c.Waiting,
		OutOfContact: c.OutOfContact, OutsideWindow: c.OutsideWindow, Held: c.Held,
	}
}

type revisionsIn struct {
	Namespace string `path:"namespace"`
	Name      string `path:"name"`
}

// revisionList has the revisions of a job.
type revisionList struct {
	Items []jobRevision `json:"items"`
}

// jobRevision is what the tasks of a job ran, or run.
type jobRevision struct {
	Revision int64 `json:"revision"`
	// Current is set for the revision that tasks have which no Rollout has changed.
	Current bool `json:"current"`
	// Update is set for the revision of the job's spec.
	Update      bool             `json:"update"`
	Created     metav1.MicroTime `json:"created"`
	ChangeCause string           `json:"changeCause,omitempty" doc:"Annotation kubernetes.io/change-cause that the job had then"`
}

// annotationChangeCause is the annotation of a revision with the reason of the change.
const annotationChangeCause = "kubernetes.io/change-cause"

// maxRevisions bounds a list of revisions. A job keeps fewer.
const maxRevisions = 1000

// listRevisions reads the revisions of a job from the API server: they are not watched. The console reads them
// with its own permissions, after it has checked those of the caller.
func (s *Server) listRevisions(ctx context.Context, in *revisionsIn) (*revisionList, error) {
	j, err := readLive[*v1alpha1.Job](ctx, s, row.Jobs, &whyIn{in.Namespace, in.Name})
	if err != nil {
		return nil, err
	}
	if err := s.requireResource(ctx, "list", appsv1.Resource("controllerrevisions"), in.Namespace, ""); err != nil {
		return nil, err
	}
	var all appsv1.ControllerRevisionList
	opts := []client.ListOption{client.InNamespace(j.Namespace), client.MatchingLabels{v1alpha1.LabelPrefixedJob: naming.LabelValue(j.Name)}, client.Limit(maxRevisions)}
	if err := s.live.List(ctx, &all, opts...); err != nil {
		return nil, fmt.Errorf("list revisions of job %s: %w", j.Name, err)
	}
	return newRevisionList(j, all.Items), nil
}

func newRevisionList(j *v1alpha1.Job, all []appsv1.ControllerRevision) *revisionList {
	out := &revisionList{Items: []jobRevision{}}
	for i := range all {
		r := &all[i]
		if !jobrevision.IsOfJob(r, j) {
			continue
		}
		out.Items = append(out.Items, jobRevision{
			Revision: r.Revision, Current: r.Revision == j.Status.CurrentRevision, Update: r.Revision == j.Status.UpdateRevision,
			Created: metav1.NewMicroTime(r.CreationTimestamp.Time), ChangeCause: r.Annotations[annotationChangeCause],
		})
	}
	slices.SortFunc(out.Items, func(a, b jobRevision) int { return cmp.Compare(b.Revision, a.Revision) })
	return out
}
