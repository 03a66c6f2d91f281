package vcjob

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/lifecycle"
)

// cluster simulates the API server and the kubelets of one Job. The planner sees the Pods
// with a delay, as in a cache.
type cluster struct {
	t       *rapid.T
	now     time.Time
	job     *batchv1.Job
	pods    map[string]*corev1.Pod
	history []map[string]*corev1.Pod // what the cache may show, the oldest first
	evicted map[string]time.Time
	created map[string]types.UID // names that were created and may not show
	marks   map[types.UID]bool   // marks that may not show
	serial  int
	resumed int
	// reasons to restart that there were, at most.
	reasons int
	phases  []lifecycle.VCJobPhase
}

func (c *cluster) snapshot() {
	all := map[string]*corev1.Pod{}
	for name, p := range c.pods {
		all[name] = p.DeepCopy()
	}
	c.history = append(c.history, all)
}

// look runs one plan on the delayed cache and executes all of its actions, or only the
// first ones: then the controller crashes and starts again.
func (c *cluster) look(lag int, diesAfter int) {
	view := c.history[max(0, len(c.history)-1-lag)]
	c.history = c.history[max(0, len(c.history)-1-lag):] // no cache goes back
	w := Input{Job: c.job.DeepCopy(), Creating: map[string]bool{}, EvictedAt: maps.Clone(c.evicted)}
	for _, name := range slices.Sorted(maps.Keys(view)) {
		p := view[name]
		if c.marks[p.UID] && !isMarkedOutOfSync(p) {
			return // expect.Stale
		}
		if c.created[name] == p.UID {
			delete(c.created, name)
		}
		w.Pods = append(w.Pods, p)
	}
	for name, uid := range c.created {
		if c.gone(name, uid) {
			delete(c.created, name) // the watch has shown it come and go
			continue
		}
		w.Creating[name] = true
	}
	w.LostReplicas = LostReplicas(w.Job, w.Pods, w.Creating)
	for range w.LostReplicas {
		if !c.fresh(view) {
			return // the live list shows more
		}
	}
	c.apply(Plan(c.now, 0, w), diesAfter)
	if lag == 0 && diesAfter < 0 {
		c.stopsAll()
	}
}

// stopsAll checks that no Pod of a stopping or stopped Job is left running.
func (c *cluster) stopsAll() {
	phase := lifecycle.VCJobPhase(c.job.Status.State.Phase)
	if phase.ManagesPods() || phase == lifecycle.VCJobRestarting {
		return
	}
	for _, p := range c.pods {
		if !hasEnded(p) && p.DeletionTimestamp == nil {
			c.t.Fatalf("the Job is %s, but Pod %s is not stopped", phase, p.Name)
		}
	}
}

// gone reports whether the cache has shown the deletion of a Pod.
func (c *cluster) gone(name string, uid types.UID) bool {
	for _, view := range c.history {
		if p := view[name]; p != nil && p.UID == uid {
			return false
		}
	}
	p := c.pods[name]
	return len(c.history) == 1 && (p == nil || p.UID != uid)
}

func (c *cluster) fresh(view map[string]*corev1.Pod) bool {
	for name := range c.pods {
		if view[name] == nil {
			return false
		}
	}
	return true
}

func (c *cluster) apply(s Actions, diesAfter int) {
	acts := c.acts(s)
	dies := diesAfter >= 0 && diesAfter < len(acts)
	if dies {
		acts = acts[:diesAfter]
	}
	c.evicted = s.EvictedAt
	for _, act := range acts {
		act()
	}
	c.snapshot()
	if dies {
		c.restart()
	}
}

// restart clears the controller's memory and refills its cache.
func (c *cluster) restart() {
	c.evicted, c.created, c.marks = nil, map[string]types.UID{}, map[types.UID]bool{}
	c.history = c.history[len(c.history)-1:]
}

// acts returns the writes of the plan, one by one, in their order.
func (c *cluster) acts(s Actions) []func() {
	var acts []func()
	mark := func(p *corev1.Pod) bool {
		is := c.pods[p.Name]
		if is == nil || is.UID != p.UID || isMarkedOutOfSync(p) {
			return false
		}
		is.Annotations[batchv1.KeyOutOfSync] = "true"
		c.marks[p.UID] = true
		return true
	}
	for _, p := range s.MarkPods {
		acts = append(acts, func() {
			if mark(p) {
				c.pods[p.Name].Annotations[keyRestart] = fmt.Sprint(s.Status.RetryCount)
			}
		})
	}
	if s.Status != nil {
		acts = append(acts, func() { c.write(s.Status) })
	}
	for _, p := range s.StopPods {
		acts = append(acts, func() { _ = mark(p) }, func() { c.delete(p) })
	}
	for _, p := range s.CreatePods {
		acts = append(acts, func() { c.create(p) })
	}
	return acts
}

func (c *cluster) write(s *batchv1.JobStatus) {
	from, to := lifecycle.VCJobPhase(c.job.Status.State.Phase), lifecycle.VCJobPhase(s.State.Phase)
	if from != to {
		legal := from == "" && to == lifecycle.VCJobPending
		for _, g := range lifecycle.VCJobSignals {
			if next, ok := lifecycle.StepVCJob(from, g); ok && next == to {
				legal = true
			}
		}
		if !legal {
			c.t.Fatalf("invalid transition from %s to %s", from, to)
		}
		c.phases = append(c.phases, to)
	}
	// Resuming a Job uses up a retry, even if none is left.
	if int(s.RetryCount) > int(c.job.Spec.MaxRetry)+c.resumed || s.RetryCount < c.job.Status.RetryCount || s.Version < c.job.Status.Version {
		c.t.Fatalf("retry %d after %d, version %d after %d", s.RetryCount, c.job.Status.RetryCount, s.Version, c.job.Status.Version)
	}
	if c.counts() && int(s.RetryCount) > c.reasons {
		c.t.Fatalf("%d restarts for %d reasons", s.RetryCount, c.reasons)
	}
	c.job.Status = *s.DeepCopy()
}

// counts reports whether the test can count the causes of the Job's restarts.
func (c *cluster) counts() bool {
	for _, p := range c.job.Spec.Tasks[0].Policies {
		if p.Event != batchv1.PodFailedEvent && p.Event != batchv1.PodEvictedEvent {
			return false
		}
	}
	return true
}

func (c *cluster) delete(p *corev1.Pod) {
	is := c.pods[p.Name]
	if is == nil || is.UID != p.UID {
		return
	}
	if hasEnded(is) || is.Spec.NodeName == "" {
		delete(c.pods, p.Name)
		return
	}
	at := metav1.NewTime(c.now)
	is.DeletionTimestamp = &at
}

// create fails while the name is taken; the controller accepts that if the Pod is its own.
func (c *cluster) create(p *corev1.Pod) {
	if c.pods[p.Name] != nil {
		return
	}
	task, index := taskOf(p)
	for _, other := range c.pods {
		if t, i := taskOf(other); t == task && i == index && !hasEnded(other) {
			c.t.Fatalf("two live Pods of %s %d", task, index)
		}
	}
	if !lifecycle.VCJobPhase(c.job.Status.State.Phase).ManagesPods() {
		c.t.Fatalf("a Pod is created while the Job is %s", c.job.Status.State.Phase)
	}
	made := p.DeepCopy()
	c.serial++
	made.UID, made.CreationTimestamp = types.UID(fmt.Sprint(c.serial)), metav1.NewTime(c.now)
	set(made, corev1.PodPending, 0)
	c.pods[p.Name] = made
	c.created[p.Name] = made.UID
}

// happen changes one Pod as its kubelet or a user might.
func (c *cluster) happen(p *corev1.Pod, what string) {
	switch {
	case what == "start" && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil:
		p.Spec.NodeName = "node"
		set(p, corev1.PodRunning, 0)
	case what == "succeed" && p.Status.Phase == corev1.PodRunning:
		set(p, corev1.PodSucceeded, 0)
	case what == "fail" && p.Status.Phase == corev1.PodRunning:
		c.reasons++
		set(p, corev1.PodFailed, int32(1+c.serial%3))
	case what == "crash" && p.Status.Phase == corev1.PodRunning:
		p.Status.ContainerStatuses[0].RestartCount++
	case what == "evict":
		c.reasons++
		c.delete(p)
	case what == "vanish":
		c.reasons++
		delete(c.pods, p.Name)
	case what == "end" && p.DeletionTimestamp != nil:
		delete(c.pods, p.Name)
	}
	c.snapshot()
}

// TestPlan_EndsLegallyAfterAnyEvents applies random Pod events, Commands, cache delays and
// crashes, and then lets the rest succeed. The Job takes only edges of its table, no
// replica ever has two live Pods, and the end matches what its Pods did.
func TestPlan_EndsLegallyAfterAnyEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{t: t, now: t0, job: drawJob(t), pods: map[string]*corev1.Pod{}, created: map[string]types.UID{}, marks: map[types.UID]bool{}}
		c.snapshot()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c.now = c.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			names := slices.Sorted(maps.Keys(c.pods))
			switch what := rapid.SampledFrom([]string{"look", "look", "look", "die", "order", "start", "start", "succeed", "fail", "crash", "evict", "vanish", "end"}).Draw(t, "what"); {
			case what == "look":
				c.look(rapid.IntRange(0, 4).Draw(t, "lag"), -1)
			case what == "die":
				c.look(rapid.IntRange(0, 4).Draw(t, "lag"), rapid.IntRange(0, 4).Draw(t, "writes"))
			case what == "order":
				c.order(rapid.SampledFrom([]batchv1.Action{"AbortJob", "ResumeJob", "RestartJob"}).Draw(t, "action"))
			case len(names) > 0:
				c.happen(c.pods[rapid.SampledFrom(names).Draw(t, "pod")], what)
			}
		}
		c.settle()
	})
}

func (c *cluster) order(a batchv1.Action) {
	c.reasons++
	if a == batchv1.ResumeJobAction {
		c.resumed++
	}
	w := Input{Job: c.job.DeepCopy(), Command: &PendingCommand{Name: "cmd", Action: a}, Creating: map[string]bool{}}
	c.history = c.history[len(c.history)-1:]
	for _, p := range c.history[0] {
		w.Pods = append(w.Pods, p)
	}
	c.apply(Plan(c.now, 0, w), -1)
}

// settle lets every Pod succeed and resumes the Job.
func (c *cluster) settle() {
	for range 100 {
		c.now = c.now.Add(time.Minute)
		for _, name := range slices.Sorted(maps.Keys(c.pods)) {
			for _, what := range []string{"end", "start", "succeed"} {
				if p := c.pods[name]; p != nil && (what == "end" || p.DeletionTimestamp == nil) {
					c.happen(p, what)
				}
			}
		}
		if c.job.Status.State.Phase == batchv1.JobAborted {
			c.order(batchv1.ResumeJobAction)
		}
		c.look(0, -1)
		if c.ended() {
			return
		}
	}
	c.t.Fatalf("the Job does not end: phase %s, phases %v: %+v", c.job.Status.State.Phase, c.phases, c.job.Status)
}

// ended reports whether the Job has ended legally: finished, without a live Pod, and
// Completed only if enough Pods have succeeded.
func (c *cluster) ended() bool {
	s := c.job.Status
	if !lifecycle.VCJobPhase(s.State.Phase).IsFinished() {
		return false
	}
	var succeeded int32
	for _, p := range c.pods {
		if !hasEnded(p) {
			return false
		}
		if p.Status.Phase == corev1.PodSucceeded {
			succeeded++
		}
	}
	completing := slices.Contains(c.phases, lifecycle.VCJobCompleting)
	if s.State.Phase == batchv1.JobCompleted && !completing && s.Succeeded < Defaulted(&c.job.Spec).MinAvailable && c.job.Spec.MinSuccess == nil {
		c.t.Fatalf("Completed with %d Pods that succeeded: %+v", s.Succeeded, s)
	}
	if succeeded > s.Succeeded {
		c.t.Fatalf("%d Pods have succeeded, the status counts %d", succeeded, s.Succeeded)
	}
	return true
}

func drawJob(t *rapid.T) *batchv1.Job {
	j := job("", rapid.Int32Range(1, 3).Draw(t, "a"), rapid.Int32Range(0, 2).Draw(t, "b"))
	if rapid.Bool().Draw(t, "depends") && j.Spec.Tasks[1].Replicas > 0 {
		j.Spec.Tasks[1].DependsOn = &batchv1.DependsOn{Name: []string{"a"}}
	}
	if rapid.Bool().Draw(t, "least") {
		j.Spec.MinAvailable = 1
	}
	j.Spec.MaxRetry = rapid.Int32Range(1, 4).Draw(t, "maxRetry")
	actions := []batchv1.Action{"RestartJob", "RestartTask", "RestartPod", "RestartPartition", "AbortJob", "TerminateJob", "CompleteJob"}
	events := []batchv1.Event{batchv1.PodFailedEvent, batchv1.PodEvictedEvent, batchv1.TaskFailedEvent, batchv1.TaskCompletedEvent, batchv1.PodPendingEvent}
	if rapid.Bool().Draw(t, "countable") {
		events = events[:2]
	}
	for _, e := range events {
		if !rapid.Bool().Draw(t, string(e)) {
			continue
		}
		p := policy(e, rapid.SampledFrom(actions).Draw(t, "action"))
		if rapid.Bool().Draw(t, "later") {
			p = after(30*time.Second, p)
		}
		j.Spec.Tasks[0].Policies = append(j.Spec.Tasks[0].Policies, p)
	}
	return j
}
