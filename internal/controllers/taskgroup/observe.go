package taskgroup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
	"k8s4r.io/k8s4r/internal/core/array"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/core/revision"
	"k8s4r.io/k8s4r/internal/core/taskcounts"
)

// observe reads the input of Plan. It returns nil if the group was deleted or the cache
// is stale.
func (c *Controller) observe(ctx context.Context, k types.NamespacedName) (*Input, error) {
	var g v1alpha1.TaskGroup
	err := c.Get(ctx, k, &g)
	if apierrors.IsNotFound(err) {
		c.Binder.ForgetGroup(k.Namespace, k.Name)
		c.expect.ForgetOwner(c.counts.forgetGroup(k))
		return nil, nil
	}
	if err != nil || c.expect.IsStale(g.UID, g.ResourceVersion) {
		return nil, err
	}
	c.counts.recordName(k, g.UID)
	w := &Input{Group: &g}
	if w.Job, err = c.getJob(ctx, &g); err != nil {
		return nil, err
	}
	if w.Waves, err = c.observeWaves(ctx, &g, w.Job); err != nil {
		return nil, err
	}
	if w.Fleet, err = c.findMatchingRobots(ctx, &g, w.Job, w.Waves); err != nil {
		return nil, err
	}
	creating := c.expect.PendingCreates(g.UID)
	c.counts.withGroup(g.UID, func(m *groupTasks) {
		if m.lastStatus.IsZero() {
			m.lastStatus = c.Now()
		}
		m.fillInput(w, creating)
	})
	if w.canAnswerJob() {
		if err := c.refreshRecords(ctx, w); err != nil {
			return nil, err
		}
		w = &Input{Group: w.Group, Job: w.Job, Fleet: w.Fleet, Waves: w.Waves}
		c.counts.withGroup(g.UID, func(m *groupTasks) { m.fillInput(w, creating) })
	}
	w.Interruptions, err = c.observeInterruptions(ctx, w)
	return w, err
}

// refreshRecords reads the Tasks of the group again, whose last events may not have arrived.
//
// For a pause or a cancel it reads them from the cache, after the Job: the task controller reads a
// later version of one of them together with this state of the Job, and starts nothing. For a requeue
// it reads past the cache, because the user may have requeued a failure that the cache does not show.
func (c *Controller) refreshRecords(ctx context.Context, w *Input) error {
	if taskcounts.PendingRequeue(w.Job, w.Group) != nil {
		return c.refreshRecordsLive(ctx, w.Group)
	}
	var names []string
	c.counts.withGroup(w.Group.UID, func(m *groupTasks) { names = m.unfinishedTasks() })
	for _, name := range names {
		var t v1alpha1.Task
		err := c.Get(ctx, types.NamespacedName{Namespace: w.Group.Namespace, Name: name}, &t, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue // the event of its deletion follows
		}
		if err != nil {
			return fmt.Errorf("get task %s: %w", name, err)
		}
		c.refreshRecord(w.Group, &t)
	}
	return nil
}

// refreshPage is the number of Tasks in one answer of the API server.
const refreshPage = 500

func (c *Controller) refreshRecordsLive(ctx context.Context, g *v1alpha1.TaskGroup) error {
	labels := client.MatchingLabels{v1alpha1.LabelTaskGroup: naming.LabelValue(g.Name)}
	for next := ""; ; {
		var page v1alpha1.TaskList
		if err := c.Live.List(ctx, &page, client.InNamespace(g.Namespace), labels, client.Limit(refreshPage), client.Continue(next)); err != nil {
			return fmt.Errorf("list tasks: %w", err)
		}
		for i := range page.Items {
			c.refreshRecord(g, &page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// refreshRecord records a Task of the group that is newer than its last event. It ignores one without
// an event, which may have been deleted meanwhile.
func (c *Controller) refreshRecord(g *v1alpha1.TaskGroup, t *v1alpha1.Task) {
	if owner := owningGroup(t); owner == nil || owner.UID != g.UID {
		return
	}
	c.counts.withGroup(g.UID, func(m *groupTasks) {
		if m.hasRecord(t.Name) {
			m.recordTask(c.Now(), t)
		}
	})
}

// getJob returns the Job that owns the group, and nil if it was deleted, even if there is
// a new Job of the same name.
func (c *Controller) getJob(ctx context.Context, g *v1alpha1.TaskGroup) (*v1alpha1.Job, error) {
	var j v1alpha1.Job
	err := c.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.Spec.JobName}, &j, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get job %s: %w", g.Spec.JobName, err)
	}
	for _, owner := range g.OwnerReferences {
		if owner.UID == j.UID {
			return &j, nil
		}
	}
	return nil, nil
}

// fillInput adds what is known about the Tasks of the group to w.
func (m *groupTasks) fillInput(w *Input, creating map[string]bool) {
	g := w.Group
	m.updateDefinition(w)
	w.Tasks, w.UnboundTasks, w.NextIndex, w.Revisions = m.countStates(), m.unbound, m.nextIndex, m.revisions
	if all := w.isSystem() || w.alignsReplicas(); all || m.outdatedTasks > 0 || m.nextIndex > apiconv.ReplicaCount(g) || isRollingOut(g) {
		w.Members = m.selectMembers(apiconv.ReplicaCount(g), all)
	}
	m.fillArray(w, creating)
	for name := range creating {
		if !m.hasRecord(name) {
			w.CreatingTasks++
			if m.createdUnbound[name] {
				w.UnboundTasks++
			}
		}
	}
	if w.Job != nil {
		w.FailingRobots = m.robotsWithFailures(taskcounts.BlocklistAfter(w.Job))
		if blocked := slices.Concat(w.FailingRobots, g.Status.BlockedRobots); len(blocked) > 0 && w.jobStartsTasks() {
			w.FailedOnBlocked, w.RangesOnBlocked = m.failedOnBlocked(blocked), m.rangesOnBlocked(blocked)
		}
		if r := taskcounts.PendingRequeue(w.Job, g); r != nil {
			w.RequeuesLeft = m.requeuesLeft(r)
			m.fillRequeuedIndexes(w, r, creating)
		}
		w.UnstoppedTasks = m.countUnstopped(lifecycle.JobState(w.Job.Status.State))
	}
	w.LastBound, w.LastStatus = m.lastBound, m.lastStatus
	w.ReservationPending = m.requestedAt == m.reservationCount+1
	w.DenialMessage, w.RetryAt = m.denial.message, m.denial.retry
	w.Defect, w.DefinitionBytes = m.defect, m.definitionBytes
	if top := min(m.nextIndex, apiconv.ReplicaCount(g)); m.mayHaveGaps(w, top) {
		w.IncompleteReplicas = m.findGaps(g, top, creating)
	}
}

// mayHaveGaps reports whether Tasks of the replicas below top may be missing. The definition of a Rollout may
// have other tasks than the group.
func (m *groupTasks) mayHaveGaps(w *Input, top int) bool {
	return m.nextIndex > top || len(m.slotCounts)+w.CreatingTasks < top*w.Group.Spec.TasksPerReplica() || w.Waves != nil && w.Waves.isDifferent()
}

// updateDefinition recomputes what follows from the definitions of the group, once per change of them.
func (m *groupTasks) updateDefinition(w *Input) {
	isNew := m.revisions == nil || m.generation != w.Group.Generation
	if isNew {
		m.setDefinition(w.Job, w.Group)
	}
	if w.Waves != nil {
		w.Waves.BaseRevisions, w.Waves.Fleet, w.Waves.fleetVersion = m.revisions, w.Fleet, m.fleet.version
	}
	if !isNew && m.waves.isSame(w.Waves) {
		return
	}
	m.waves = w.Waves
	for name, c := range m.records {
		m.countRecord(c, -1)
		c.definitionCheck = m.checkDefinition(&c)
		m.records[name] = c
		m.countRecord(c, 1)
	}
}

// setDefinition computes what follows from a new generation of the group. Rejections of the old definition
// are dropped.
func (m *groupTasks) setDefinition(j *v1alpha1.Job, g *v1alpha1.TaskGroup) {
	m.generation, m.revisions, m.defect = g.Generation, revision.TaskRevisions(&g.Spec.TaskGroupTemplate), findDefect(j, g)
	m.definitionBytes = kit.MemorySize(&g.Spec.TaskGroupTemplate)
	m.batch, m.requestedAt, m.denial = 1, 0, denial{}
	if g.Spec.Array != nil {
		m.array = newArrayIndexes(g.Spec.Array, m.records)
	}
}

// selectMembers returns the Tasks for Input.Members.
func (m *groupTasks) selectMembers(count int, all bool) []Member {
	var out []Member
	for name, c := range m.records {
		isSurplus := !c.isIndex && c.slot.index >= count
		if all || c.needsChange() || isSurplus || c.evict > 0 || m.waves != nil && c.revisedAt != 0 {
			out = append(out, c.newMember(name))
		}
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// findGaps returns up to maxReplicasPerPlan replicas below top with missing Tasks.
func (m *groupTasks) findGaps(g *v1alpha1.TaskGroup, top int, creating map[string]bool) []Replica {
	var out []Replica
	sides := m.replicaSides()
	for i := 0; i < top && len(out) < maxReplicasPerPlan; i++ {
		r := Replica{Index: i, Target: m.waves != nil && m.waves.choose(m.waves.unitOf(i, ""), sides[i])}
		for _, def := range m.waves.template(g, r.Target).TaskDefinitions() {
			if m.slotCounts[taskSlot{i, def.Name}] == 0 && !creating[taskName(g, i, def.Name, m.takenNames)] {
				r.Tasks = append(r.Tasks, def)
			}
		}
		if len(r.Tasks) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// replicaSides returns the definitions of the replicas, by index. Nil if Tasks have only one definition.
func (m *groupTasks) replicaSides() map[int]side {
	if m.waves == nil || !m.waves.isDifferent() {
		return nil
	}
	sides := make(map[int]side, len(m.records))
	for _, c := range m.records {
		sides[c.slot.index] = sides[c.slot.index].addSide(c.side)
	}
	return sides
}

// Defect is why Tasks of a definition cannot exist. The zero value: they can.
type Defect struct {
	// Reason is that of the conditions that show it.
	Reason string
	// Message names the field, and what to do.
	Message string
}

func (d Defect) isSet() bool { return d.Reason != "" }

// findDefect returns why the group's Tasks cannot exist. It measures each definition once, because
// replicas do not differ in size. The job is nil if it was deleted.
func findDefect(j *v1alpha1.Job, g *v1alpha1.TaskGroup) Defect {
	if j != nil {
		if err := array.Check("spec.taskGroups["+g.Spec.GroupName+"].", j.Spec.Type, &g.Spec.TaskGroupTemplate); err != nil {
			return Defect{apiconv.ReasonArrayInvalid, err.Error()}
		}
	}
	for _, def := range g.Spec.TaskDefinitions() {
		if why := apiconv.DescribeOversize(&v1alpha1.TaskSpec{TaskDefinition: *def, Array: array.LargestRange(g.Spec.Array)}); why != "" {
			return Defect{apiconv.ReasonTaskTooLarge, why}
		}
	}
	if bytes := kit.MemorySize(&g.Spec.TaskGroupTemplate) * apiconv.ReplicaCount(g); g.Spec.Gang && bytes > maxGangBytes {
		return Defect{apiconv.ReasonTaskTooLarge, fmt.Sprintf("the tasks of the gang need %d MiB of the controller's memory, at most %d MiB are allowed; shorten their definitions, or lower count", bytes>>20, maxGangBytes>>20)}
	}
	return Defect{}
}

// maxGangBytes bounds the memory of a gang, whose tasks are created at once.
const maxGangBytes = 16 * kit.MaxBatchBytes

// groupsOfJob returns requests for the groups of a job.
func (c *Controller) groupsOfJob(ctx context.Context, j client.Object) []reconcile.Request {
	var groups v1alpha1.TaskGroupList
	err := c.List(ctx, &groups, client.InNamespace(j.GetNamespace()), client.MatchingFields{indexJob: j.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache has stopped, and with it the controller
	}
	out := make([]reconcile.Request, len(groups.Items))
	for i := range groups.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&groups.Items[i])
	}
	return out
}

// onJobStateChange drops updates of a job that change only its counts.
func onJobStateChange() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.Job), e.ObjectNew.(*v1alpha1.Job)
		return before.Status.State != after.Status.State || before.Generation != after.Generation
	}})
}
