package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// flowsOnly runs what is tested here; the test itself plays the controllers of Jobs.
var flowsOnly = manager.Config{Controllers: []string{"jobflow", "jobtemplate"}}

// flows is a namespace in which flows run.
type flows struct {
	*space
}

// flows creates a namespace in which flows run.
func (s *system) flows(t *testing.T, name string) *flows {
	t.Helper()
	return &flows{s.namespace(t, name)}
}

// template of a Job of pods that is called so.
func (s *flows) template(names ...string) {
	s.Helper()
	for _, name := range names {
		s.must(s.Create(s.Context(), podTemplate(s.name, name)))
	}
}

func podTemplate(namespace, name string) *flowv1.JobTemplate {
	return &flowv1.JobTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"own": "label"}},
		Spec: batchv1.JobSpec{Tasks: []batchv1.TaskSpec{{
			Name: "main", Replicas: 1,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "c", Image: "busybox", Command: []string{"true"}}},
			}},
		}}},
	}
}

// after is a step that depends on others.
func after(name string, targets ...string) flowv1.Flow {
	f := flowv1.Flow{Name: name}
	if len(targets) > 0 {
		f.DependsOn = &flowv1.DependsOn{Targets: targets}
	}
	return f
}

// flow creates a flow; its templates too, unless they exist.
func (s *flows) flow(name string, spec flowv1.JobFlowSpec) *flowv1.JobFlow {
	s.Helper()
	for _, f := range spec.Flows {
		if f.TemplateRef == nil {
			if err := s.Create(s.Context(), podTemplate(s.name, f.Name)); err != nil && !apierrors.IsAlreadyExists(err) {
				s.Fatal(err)
			}
		}
	}
	return s.bare(name, spec)
}

// bare creates a flow, without its templates.
func (s *flows) bare(name string, spec flowv1.JobFlowSpec) *flowv1.JobFlow {
	s.Helper()
	f := &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: spec}
	s.must(s.Create(s.Context(), f))
	return f
}

func steps(all ...flowv1.Flow) flowv1.JobFlowSpec { return flowv1.JobFlowSpec{Flows: all} }

func (s *flows) read(name string) *flowv1.JobFlow {
	s.Helper()
	var f flowv1.JobFlow
	s.must(s.Get(s.Context(), s.key(name), &f))
	return &f
}

// await waits until the flow is as check wants it.
func (s *flows) await(name, what string, check func(*flowv1.JobFlow) error) *flowv1.JobFlow {
	s.Helper()
	var f flowv1.JobFlow
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("flow %s: %s", name, what), func() error {
		if err := s.Get(s.Context(), s.key(name), &f); err != nil {
			return err
		}
		if err := check(&f); err != nil {
			return fmt.Errorf("%w; status %+v", err, f.Status)
		}
		return nil
	})
	return &f
}

func (s *flows) awaitFlow(name string, want flowv1.Phase) *flowv1.JobFlow {
	s.Helper()
	return s.await(name, string(want), func(f *flowv1.JobFlow) error {
		if f.Status.State.Phase != want {
			return fmt.Errorf("phase %q", f.Status.State.Phase)
		}
		return nil
	})
}

// vcjob waits for a Job.
func (s *flows) vcjob(name string) *batchv1.Job {
	s.Helper()
	var j batchv1.Job
	testkit.EventuallyNoError(s, waitTimeout, "job "+name+" exists", func() error { return s.Get(s.Context(), s.key(name), &j) })
	return &j
}

func (s *flows) vcjobs() []string {
	s.Helper()
	var list batchv1.JobList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name)))
	var names []string
	for _, j := range list.Items {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	return names
}

// only checks which Jobs exist, once the flow has seen all that there is to see.
func (s *flows) only(want ...string) {
	s.Helper()
	if got := s.vcjobs(); !slices.Equal(got, want) {
		s.Errorf("jobs %v, want %v", got, want)
	}
}

// phase writes the phase of a Job, as its controller does.
func (s *flows) phase(job string, phases ...batchv1.JobPhase) {
	s.Helper()
	for _, to := range phases {
		s.vcjob(job)
		testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("job %s becomes %s", job, to), func() error {
			var j batchv1.Job
			if err := s.Get(s.Context(), s.key(job), &j); err != nil {
				return err
			}
			setPhase(&j, to)
			return s.Status().Update(s.Context(), &j)
		})
	}
}

func setPhase(j *batchv1.Job, to batchv1.JobPhase) {
	j.Status.State.Phase = to
	j.Status.TaskStatusCount = map[string]batchv1.TaskState{"main": {Phase: map[corev1.PodPhase]int32{corev1.PodRunning: 1}}}
	if flowv1.HasEnded(to) {
		j.Status.RunningDuration = &metav1.Duration{Duration: 1500 * time.Millisecond}
		j.Status.TaskStatusCount["main"] = batchv1.TaskState{Phase: map[corev1.PodPhase]int32{corev1.PodSucceeded: 1}}
	}
}

// seen waits until the flow's status has this state of a Job.
func (s *flows) seen(flow, job string, want batchv1.JobPhase) *flowv1.JobFlow {
	s.Helper()
	return s.await(flow, fmt.Sprintf("has seen that job %s is %s", job, want), func(f *flowv1.JobFlow) error {
		for _, e := range f.Status.JobStatusList {
			if e.Name == job && e.State == want {
				return nil
			}
		}
		return fmt.Errorf("it has not")
	})
}

// runs plays the controller of Jobs of pods: each Job runs and ends as outcome says,
// until the test ends. Nil: it completes.
func (s *flows) runs(outcome func(*batchv1.Job) batchv1.JobPhase) *ran {
	s.Helper()
	r := &ran{}
	go func() {
		for s.Context().Err() == nil {
			s.play(s.Context(), r, outcome)
		}
	}()
	return r
}

// ran are the Jobs that have started, in order.
type ran struct {
	mu   sync.Mutex
	uids map[string]bool
	jobs []string
}

func (r *ran) add(j *batchv1.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uids == nil {
		r.uids = map[string]bool{}
	}
	if !r.uids[string(j.UID)] {
		r.uids[string(j.UID)] = true
		r.jobs = append(r.jobs, j.Name)
	}
}

func (r *ran) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs)
}

func (s *flows) play(ctx context.Context, r *ran, outcome func(*batchv1.Job) batchv1.JobPhase) {
	var list batchv1.JobList
	if s.List(ctx, &list, client.InNamespace(s.name)) != nil {
		return
	}
	for i := range list.Items {
		s.end(ctx, r, &list.Items[i], outcome)
	}
	w, err := s.Watch(ctx, &list, &client.ListOptions{Namespace: s.name, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return
	}
	for e := range w.ResultChan() {
		if j, ok := e.Object.(*batchv1.Job); ok && e.Type == watch.Added {
			s.end(ctx, r, j, outcome)
		}
	}
}

func (s *flows) end(ctx context.Context, r *ran, j *batchv1.Job, outcome func(*batchv1.Job) batchv1.JobPhase) {
	if j.Status.State.Phase != "" {
		return
	}
	r.add(j)
	to := batchv1.JobCompleted
	if outcome != nil {
		to = outcome(j)
	}
	if to == "" {
		return
	}
	for _, phase := range []batchv1.JobPhase{batchv1.JobRunning, to} {
		setPhase(j, phase)
		if err := s.Status().Update(ctx, j); err != nil {
			return
		}
	}
}

// eventNotes returns the notes of an object's events with this reason, with their number.
func (s *flows) eventNotes(object, reason string) map[string]int {
	s.Helper()
	var list eventsv1.EventList
	s.must(s.List(s.Context(), &list, client.InNamespace(s.name)))
	out := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Name == object && e.Reason == reason {
			n := 1
			if e.Series != nil {
				n = int(e.Series.Count)
			}
			out[e.Note] += n
		}
	}
	return out
}

func (s *flows) awaitSaid(object, reason, note string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("event %s of %s", reason, object), func() error {
		if found := s.eventNotes(object, reason); found[note] != 1 {
			return fmt.Errorf("%d events with the note %q; all: %v", found[note], note, found)
		}
		return nil
	})
}

// edit changes the spec of a flow.
func (s *flows) edit(name string, f func(*flowv1.JobFlowSpec)) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "change flow "+name, func() error {
		now := s.read(name)
		f(&now.Spec)
		return s.Update(s.Context(), now)
	})
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// text of a flow as JSON.
func (s *flows) text(name string) string {
	s.Helper()
	b, err := json.Marshal(s.read(name))
	s.must(err)
	return string(b)
}

func (s *flows) nsObject() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
}
