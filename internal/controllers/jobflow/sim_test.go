package jobflow

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// sim simulates the API server, its cache, the controller's memory and the operators of
// Jobs.
type sim struct {
	now  time.Time
	flow *flowv1.JobFlow
	// jobs of the API server, and those of them that the cache shows.
	jobs    map[types.UID]*Job
	visible map[types.UID]bool
	// what the controller remembers.
	gone, lost map[types.UID]*Job
	missing    map[types.UID]time.Time
	// weighed are the deleted Jobs that a plan has seen.
	weighed   map[types.UID]bool
	creating  map[string]bool
	last      time.Time
	templates map[TemplateKey]*Template
	// drop reports whether this status write meets a conflict.
	drop func() bool
	// made is called for each Job that is made.
	made func(step string, j *Job)
	// stopped is called for each Job that is called off.
	stopped func(*Job)
	// steps of all Jobs that were ever made.
	stepOf map[types.UID]string
	events []Event
	ended  []flowv1.Phase
	writes int
	// prunes drops the fields of the status that Volcano's definition does not have.
	prunes bool
	// archives: the manager keeps an archive.
	archives bool
	read     *Graph
	of       int64 // generation that was read
	n        int
}

func newSim(spec flowv1.JobFlowSpec) *sim {
	s := &sim{
		now: noon, jobs: map[types.UID]*Job{}, visible: map[types.UID]bool{}, stepOf: map[types.UID]string{},
		templates: map[TemplateKey]*Template{}, weighed: map[types.UID]bool{},
		flow: &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "f", UID: "flow", Generation: 1}, Spec: spec},
	}
	for i := range spec.Flows {
		key := templateKeyOf(&spec.Flows[i])
		if key.Kind == Robots {
			s.templates[key] = &Template{Robots: &robotv1.JobTemplate{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}}
		} else {
			s.templates[key] = &Template{Pods: &flowv1.JobTemplate{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}}
		}
	}
	s.restart()
	return s
}

// restart clears the controller's memory, including delete events that were not recorded.
func (s *sim) restart() {
	s.lost = s.gone
	s.gone, s.missing, s.creating, s.last = map[types.UID]*Job{}, map[types.UID]time.Time{}, map[string]bool{}, time.Time{}
	for id := range s.jobs {
		s.visible[id] = true
	}
}

func (s *sim) edit(f func(*flowv1.JobFlowSpec)) {
	f(&s.flow.Spec)
	s.flow.Generation++
}

func (s *sim) graph() *Graph {
	if s.read == nil || s.of != s.flow.Generation {
		s.read, s.of = NewGraph(&s.flow.Spec), s.flow.Generation
	}
	return s.read
}

func (s *sim) input() Input {
	w := Input{
		Flow: s.flow.DeepCopy(), Graph: s.graph(), Jobs: map[types.UID]*Job{}, DeletedJobs: maps.Clone(s.gone),
		MissingSince: s.missing, Creating: maps.Clone(s.creating), Templates: s.templates, LastStatusWrite: s.last,
		Archives: s.archives,
	}
	for id, j := range s.jobs {
		if s.visible[id] {
			one := *j
			w.Jobs[id] = &one
			delete(w.Creating, j.Name)
			delete(s.creating, j.Name)
		}
	}
	for _, r := range unseenJobs(&w) {
		if !s.exists(r) {
			s.missing[r.key()] = s.now
		}
	}
	return w
}

// exists reports whether the API server has a Job.
func (s *sim) exists(r recordedJob) bool {
	for id, j := range s.jobs {
		if id == r.uid || r.uid == "" && j.Name == r.name {
			return true
		}
	}
	return false
}

// look runs one reconcile.
func (s *sim) look() Actions {
	w := s.input()
	for id := range w.DeletedJobs {
		s.weighed[id] = true
	}
	out := Plan(s.now, w)
	for _, d := range out.Delete {
		s.remove(d.UID)
	}
	for _, j := range out.Stop {
		if live := s.jobs[j.UID]; live != nil && !live.hasEnded() {
			live.Phase = batchv1.JobTerminated
			if s.stopped != nil {
				s.stopped(live)
			}
		}
	}
	uids := map[string]types.UID{}
	for _, c := range out.Create {
		uids[c.Step] = s.create(c)
	}
	if !s.write(out, w, uids) {
		out.Status = nil
	}
	return out
}

func (s *sim) create(c Create) types.UID {
	name := c.jobObject().GetName()
	for id, j := range s.jobs {
		if j.Name == name {
			return id // the name is taken by our own Job; there are no other owners here
		}
	}
	s.n++
	j := &Job{Kind: Pods, Name: name, UID: types.UID(fmt.Sprintf("job-%d", s.n)), Created: metav1.NewTime(s.now)}
	s.jobs[j.UID], s.creating[name], s.stepOf[j.UID] = j, true, c.Step
	if s.made != nil {
		s.made(c.Step, j)
	}
	return j.UID
}

// write stores the status and reports whether that changed it.
func (s *sim) write(out Actions, w Input, made map[string]types.UID) bool {
	if out.Status == nil || s.drop != nil && s.drop() {
		return false
	}
	status := *out.Status.DeepCopy()
	status.Steps = recordCreatedJobs(status.Steps, made)
	if s.prunes {
		pruneToVolcano(&status)
	}
	changed := !equality.Semantic.DeepEqual(status, s.flow.Status)
	s.flow.Status = status
	s.last = s.now
	s.writes++
	for id := range w.DeletedJobs {
		delete(s.gone, id)
	}
	s.events = append(s.events, out.Events...)
	if out.EndedPhase != "" {
		s.ended = append(s.ended, out.EndedPhase)
	}
	return changed
}

// pruneToVolcano drops what the API server drops where Volcano's definition stands.
func pruneToVolcano(status *flowv1.JobFlowStatus) {
	status.Steps, status.FlowConditions, status.ObservedGeneration, status.Retry = nil, nil, 0, 0
	status.StartTime, status.CompletionTime = nil, nil
	for i := range status.JobStatusList {
		status.JobStatusList[i].UID = ""
	}
}

// remove deletes a Job and sends the delete event.
func (s *sim) remove(id types.UID) {
	if j := s.jobs[id]; j != nil {
		last := *j
		s.gone[id] = &last
		delete(s.jobs, id)
		delete(s.creating, j.Name)
	}
}

// show makes the cache show all Jobs.
func (s *sim) show() {
	for id := range s.jobs {
		s.visible[id] = true
	}
}

// settle reconciles until there is nothing to do, and advances the clock to requeue times.
func (s *sim) settle() {
	for range 50 {
		s.show()
		out := s.look()
		if out.Status == nil && len(out.Create)+len(out.Delete)+len(out.Stop) == 0 {
			if out.RequeueAt.IsZero() || out.RequeueAt.After(s.now.Add(time.Minute)) {
				return
			}
			s.now = out.RequeueAt
		}
	}
}

// set sets the phase of a step's Job.
func (s *sim) set(step string, phase batchv1.JobPhase) {
	s.job(step).Phase = phase
	s.settle()
}

func (s *sim) job(step string) *Job {
	for _, j := range s.jobs {
		if j.Name == JobName("f", step) {
			return j
		}
	}
	panic("no job of step " + step)
}

func (s *sim) names() []string {
	var out []string
	for _, j := range s.jobs {
		out = append(out, j.Name)
	}
	slices.Sort(out)
	return out
}

func (s *sim) step(name string) flowv1.StepStatus {
	for _, st := range s.flow.Status.Steps {
		if st.Name == name {
			return st
		}
	}
	return flowv1.StepStatus{}
}
