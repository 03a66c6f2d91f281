package jobflow

import (
	"fmt"
	"testing"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
)

// BenchmarkPlan plans a flow of a thousand steps, half of which have ended.
func BenchmarkPlan(b *testing.B) {
	spec := steps(after("first"))
	for i := range 1000 {
		spec.Flows = append(spec.Flows, after(fmt.Sprint("s", i), "first"))
	}
	s := newSim(spec)
	s.settle()
	s.set("first", batchv1.JobCompleted)
	for i := range 500 {
		s.job(fmt.Sprint("s", i)).Phase = batchv1.JobCompleted
	}
	s.settle()
	w := s.input()
	for b.Loop() {
		RequiredTemplates(s.now, w)
		Plan(s.now, w)
	}
}

// BenchmarkNewGraph builds the graph of such a flow, as after each change of its spec.
func BenchmarkNewGraph(b *testing.B) {
	spec := steps(after("first"))
	for i := range 1000 {
		spec.Flows = append(spec.Flows, after(fmt.Sprint("s", i), "first"))
	}
	for b.Loop() {
		NewGraph(&spec)
	}
}

// BenchmarkFan plans the start of a thousand steps at once.
func BenchmarkFan(b *testing.B) {
	spec := steps(after("first"))
	for i := range 1000 {
		spec.Flows = append(spec.Flows, after(fmt.Sprint("s", i), "first"))
	}
	s := newSim(spec)
	s.settle()
	s.job("first").Phase = batchv1.JobCompleted
	w := s.input()
	for b.Loop() {
		if n := len(Plan(s.now, w).Create); n != 1000 {
			b.Fatal(n)
		}
	}
}
