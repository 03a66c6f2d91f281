package jobflow

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// TestPlan_MatchesModel drives the plan through random graphs of up to 200 steps, with Job
// events in random order, deletions, conflicts, a stale cache, retries and restarts of the
// controller. Each step must run exactly once unless it is retried, never before its
// dependencies, and the flow must end as in a model that does not depend on the order.
func TestPlan_MatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		for !m.ended() {
			m.act()
		}
		m.check()
	})
}

// model holds a flow, the outcome of each future run, and the runs so far.
type model struct {
	*rapid.T
	*sim
	index map[string]int
	// ends are what the runs of each step come to; a run beyond them completes.
	ends map[string][]batchv1.JobPhase
	runs map[string]int
	idle int
}

func drawModel(t *rapid.T) *model {
	n := rapid.IntRange(0, 8).Draw(t, "steps")
	if rapid.IntRange(0, 9).Draw(t, "large") == 0 { // small ones find most, and are quick
		n = rapid.IntRange(9, 200).Draw(t, "steps")
	}
	spec := flowv1.JobFlowSpec{FailurePolicy: rapid.SampledFrom([]flowv1.FailurePolicy{"", flowv1.FailFast, flowv1.Finish, flowv1.Continue}).Draw(t, "policy")}
	m := &model{T: t, ends: map[string][]batchv1.JobPhase{}, runs: map[string]int{}, index: map[string]int{}}
	conditions := []flowv1.DependencyCondition{"", "", "", flowv1.WhenFailed, flowv1.WhenFinished, flowv1.WhenRunning}
	rare := rapid.IntRange(1, 20).Draw(t, "rare") // how seldom a run fails
	for i := range n {
		f := flowv1.Flow{Name: fmt.Sprintf("s%d", i)}
		if i > 0 {
			for range rapid.IntRange(0, 3).Draw(t, "targets") {
				if f.DependsOn == nil {
					f.DependsOn = &flowv1.DependsOn{Condition: rapid.SampledFrom(conditions).Draw(t, "condition")}
				}
				f.DependsOn.Targets = append(f.DependsOn.Targets, fmt.Sprintf("s%d", rapid.IntRange(max(0, i-20), i-1).Draw(t, "target")))
			}
		}
		if limit := rapid.IntRange(0, 2).Draw(t, "retries"); limit > 0 {
			f.Retry = &flowv1.StepRetry{Limit: int32(limit), Backoff: batchv1.NewDuration(time.Second)}
		}
		for range 3 {
			if rapid.IntRange(0, rare).Draw(t, "fails") == 0 {
				m.ends[f.Name] = append(m.ends[f.Name], rapid.SampledFrom([]batchv1.JobPhase{batchv1.JobFailed, batchv1.JobTerminated}).Draw(t, "end"))
			} else {
				m.ends[f.Name] = append(m.ends[f.Name], batchv1.JobCompleted)
			}
		}
		spec.Flows = append(spec.Flows, f)
	}
	spec.Flows = rapid.Permutation(spec.Flows).Draw(t, "order")
	m.sim = newSim(spec)
	if m.prunes = rapid.IntRange(0, 3).Draw(t, "prunes") == 0; m.prunes {
		dropExtensions(&m.flow.Spec)
	}
	for i := range spec.Flows {
		m.index[spec.Flows[i].Name] = i
	}
	m.drop = func() bool { return rapid.IntRange(0, 9).Draw(t, "conflict") == 0 }
	m.made = m.starts
	m.stopped = func(j *Job) { *m.outcome(j) = batchv1.JobTerminated }
	return m
}

// dropExtensions drops the fields of the spec that Volcano's definition does not have.
func dropExtensions(spec *flowv1.JobFlowSpec) {
	spec.FailurePolicy = ""
	for i := range spec.Flows {
		spec.Flows[i].Retry = nil
		if d := spec.Flows[i].DependsOn; d != nil {
			d.Condition = ""
		}
	}
}

// ended reports whether the flow and all of its Jobs have ended.
func (m *model) ended() bool {
	phase := m.flow.Status.State.Phase
	if phase != flowv1.Succeed && phase != flowv1.Failed {
		return false
	}
	for _, j := range m.jobs {
		if !j.hasEnded() {
			return false
		}
	}
	return true
}

// act triggers one random event and sometimes a reconcile.
func (m *model) act() {
	if m.idle++; m.idle > 20000 {
		m.Fatalf("the flow does not end: %+v", m.flow.Status)
	}
	switch rapid.IntRange(0, 19).Draw(m.T, "event") {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		m.advance()
	case 8:
		m.delete()
	case 9:
		m.forget()
	case 10:
		m.now = m.now.Add(3 * time.Second)
	case 11:
		m.show()
	default:
		m.look()
	}
}

// pick returns one of the Jobs, in a deterministic order.
func (m *model) pick() *Job {
	all := make([]*Job, 0, len(m.jobs))
	for _, j := range m.jobs {
		all = append(all, j)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *Job) int { return len(a.UID) - len(b.UID) + 2*compare(string(a.UID), string(b.UID)) })
	return all[rapid.IntRange(0, len(all)-1).Draw(m.T, "job")]
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// advance starts or ends a Job.
func (m *model) advance() {
	j := m.pick()
	switch {
	case j == nil || j.hasEnded():
	case j.Phase == "":
		j.Phase = batchv1.JobRunning
	default:
		m.end(j, *m.outcome(j))
	}
}

func (m *model) end(j *Job, phase batchv1.JobPhase) {
	j.Phase = phase
	*m.outcome(j) = phase
}

// outcome returns the outcome of the run that a Job belongs to.
func (m *model) outcome(j *Job) *batchv1.JobPhase {
	step := m.stepOf[j.UID]
	return &m.ends[step][m.runs[step]-1]
}

// delete deletes a Job. If it had not ended, its run has failed.
func (m *model) delete() {
	j := m.pick()
	if j == nil || rapid.IntRange(0, 5).Draw(m.T, "really") > 0 {
		return
	}
	if !j.hasEnded() {
		*m.outcome(j) = batchv1.JobFailed
	}
	m.remove(j.UID)
}

// forget restarts the controller. If a Job was deleted before its end was recorded, the
// end is lost and counts as a failure; the step does not run twice.
func (m *model) forget() {
	if rapid.IntRange(0, 3).Draw(m.T, "really") > 0 || m.acted() {
		return
	}
	m.restart()
	for id, j := range m.lost {
		step := m.stepOf[id]
		if !m.recordsJob(step, j) {
			if m.recordedLater(id, step) {
				continue
			}
			// Its creation is not recorded, so the controller cannot know of it. That
			// cannot happen if the status is written together with the creation.
			m.gone[id] = j
			continue
		}
		if !m.flow.Status.IsJobRecorded(j.Name, string(id)) {
			*m.outcome(j) = batchv1.JobFailed
		}
	}
}

// recordsJob reports whether the status records that the Job exists, or existed.
func (m *model) recordsJob(step string, j *Job) bool {
	if !m.prunes {
		return m.step(step).JobUID == string(j.UID)
	}
	return jobPhases(m.flow.Status.JobStatusList)[j.Name] != ""
}

// acted reports whether the controller has acted on an end that is not recorded yet. A
// restart would then contradict steps that have started.
func (m *model) acted() bool {
	for id := range m.gone {
		if m.weighed[id] {
			return true
		}
	}
	return false
}

// recordedLater reports whether the step has moved on to a later Job.
func (m *model) recordedLater(id any, step string) bool {
	st := m.step(step)
	return st.RetiredUID == fmt.Sprint(id)
}

// starts checks that the step may run now and was not run before.
func (m *model) starts(name string, j *Job) {
	f := &m.flow.Spec.Flows[m.index[name]]
	for _, other := range m.jobs {
		if other.Name == j.Name && other.UID != j.UID {
			m.Fatalf("step %s has two running Jobs", name)
		}
	}
	if n := m.runs[name]; n > 0 {
		if last := m.ends[name][n-1]; last == batchv1.JobCompleted {
			m.Fatalf("step %s has completed and runs again", name)
		}
		if f.Retry == nil || n > int(f.Retry.Limit) {
			m.Fatalf("step %s runs for the %dth time", name, n+1)
		}
	}
	m.runs[name]++
	if f.DependsOn == nil {
		return
	}
	for _, target := range f.DependsOn.Targets {
		if !m.holds(target, dependencyCondition(f)) {
			m.Fatalf("step %s runs before %s has reached %q; status %+v, runs %v", name, target, f.DependsOn.Condition, m.step(target), m.ends[target][:m.runs[target]])
		}
	}
}

// holds reports whether a target has reached the condition.
func (m *model) holds(target string, c flowv1.DependencyCondition) bool {
	n := m.runs[target]
	st := m.step(target)
	if n == 0 { // skipped, or never to run
		return st.Skipped && c != flowv1.WhenFailed || c == flowv1.WhenFinished || c != flowv1.WhenFailed && m.want()[target] == skipped
	}
	end := m.ends[target][n-1]
	for _, j := range m.jobs {
		if j.Name == JobName("f", target) {
			if !j.hasEnded() {
				return c == flowv1.WhenRunning && j.Phase == batchv1.JobRunning
			}
		}
	}
	switch c {
	case flowv1.WhenFailed:
		return end != batchv1.JobCompleted
	case flowv1.WhenFinished:
		return true
	}
	return end == batchv1.JobCompleted
}

// want returns the expected outcomes if nothing is suspended. They do not depend on the
// order of events, except that a step which waits for a failed target to run may or may
// not have started; it is not retried afterwards.
func (m *model) want() map[string]state {
	out := map[string]state{}
	for i := range len(m.index) {
		name := fmt.Sprintf("s%d", i) // each after those that it depends on
		f := &m.flow.Spec.Flows[m.index[name]]
		v, tries := dependencyMet, 1
		if f.Retry != nil {
			tries += int(f.Retry.Limit)
		}
		if f.DependsOn != nil {
			for _, target := range f.DependsOn.Targets {
				if out[target] == failed && dependencyCondition(f) == flowv1.WhenRunning && m.runs[name] > 0 {
					tries = m.runs[name]
					continue
				}
				v = max(v, targetState(&step{state: out[target]}, dependencyCondition(f)))
			}
		}
		switch v {
		case dependencyMet:
			out[name] = m.comesTo(f, tries)
		case dependencyUnmet:
			out[name] = skipped
		default:
			out[name] = omitted
		}
	}
	return out
}

func (m *model) comesTo(f *flowv1.Flow, tries int) state {
	if slices.Contains(m.ends[f.Name][:tries], batchv1.JobCompleted) {
		return completed
	}
	return failed
}

func (m *model) check() {
	want, fails := m.want(), false
	for _, s := range want {
		fails = fails || s == failed
	}
	phase := flowv1.Succeed
	if fails {
		phase = flowv1.Failed
	}
	if m.flow.Status.State.Phase != phase {
		m.Fatalf("the flow is %s, want %s: %v", m.flow.Status.State.Phase, phase, want)
	}
	if len(m.sim.ended) != 1 || m.sim.ended[0] != phase {
		m.Fatalf("ends %v were counted", m.sim.ended)
	}
	if m.flow.Spec.FailurePolicy != flowv1.Continue && fails {
		return // what else has run depends on what came first
	}
	for name, s := range want {
		if ran := m.runs[name] > 0; ran != (s == completed || s == failed) {
			m.Fatalf("step %s ran: %v, want state %s", name, ran, s)
		}
	}
}
