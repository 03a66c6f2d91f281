package jobflow

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// The API server must accept the status whatever messages, outputs and histories steps
// have.
func TestPlan_LimitsStatusSize(t *testing.T) {
	for _, c := range []struct {
		name        string
		steps, long int // length of the names
		text        string
		most        int
	}{
		{"a thousand steps", 1000, 12, "plain words ", 1_050_000},
		{"a thousand steps with long names", 1000, 63, "plain words ", 1_200_000},
		{"texts that weigh more than they are long", 1000, 12, "<&\x01\u2028>\"\\", 1_050_000},
		{"two hundred steps", 200, 40, "words ", 1_000_000},
		{"ten steps", 10, 40, "words ", 1_000_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(c.steps), uint64(c.long)))
			spec := policed(flowv1.Continue)
			for i := range c.steps {
				spec.Flows = append(spec.Flows, after(fmt.Sprintf("%0*d", c.long, i)))
			}
			s := newSim(spec)
			s.flow.Name = strings.Repeat("f", c.long)
			words := strings.Repeat(c.text, 8<<10/len(c.text))
			passes := max(12, min(3*maxHistory/2, 5000/c.steps))
			if testing.Short() {
				passes = max(7, passes/8)
			}
			for pass := range passes {
				s.now = s.now.Add(time.Minute)
				w := s.wordy(random, words, pass < 3, pass > passes*2/3)
				out, was := Plan(s.now, w), s.flow.Status
				made := map[string]types.UID{}
				for _, one := range out.Create {
					made[one.Step] = s.create(one)
				}
				s.write(out, w, made)
				if got := sizeOf(t, s.flow.Status); got > c.most {
					t.Fatalf("pass %d: the status weighs %d bytes, more than %d; lists %d, steps %d, conditions %d", pass, got, c.most,
						sizeOf(t, s.flow.Status.JobStatusList), sizeOf(t, s.flow.Status.Steps), sizeOf(t, s.flow.Status.Conditions))
				}
				same := s.input()
				same.Outputs = w.Outputs
				if again := Plan(s.now.Add(time.Second), same); pass > 5 && again.Status != nil && s.flow.Status.State.Phase == was.State.Phase {
					t.Fatalf("pass %d: the same is written once more", pass)
				}
			}
			if c.steps == 1000 && len(s.flow.Status.JobStatusList) != c.steps {
				t.Errorf("%d of %d steps have run", len(s.flow.Status.JobStatusList), c.steps)
			}
		})
	}
}

// wordy returns an input in which all Jobs have long messages. Many are rejected first,
// and all end.
func (s *sim) wordy(random *rand.Rand, words string, beginning, end bool) Input {
	s.show()
	for _, j := range s.jobs {
		j.Phase, j.Restarts, j.Counts = aPhase(random, end), 99, someCounts(random)
	}
	w := s.input()
	w.Outputs, w.Rejected = map[types.UID]stepjob.Outputs{}, map[string]string{}
	for id := range w.Jobs {
		w.Outputs[id] = stepjob.Outputs{Values: map[string]string{"x": words[:random.IntN(len(words))]}}
	}
	for i := range s.flow.Spec.Flows {
		if beginning && random.IntN(2) == 0 {
			w.Rejected[s.flow.Spec.Flows[i].Name] = words[:random.IntN(4096)]
		}
	}
	return w
}

func sizeOf(t *testing.T, what any) int {
	t.Helper()
	b, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

func aPhase(random *rand.Rand, end bool) batchv1.JobPhase {
	if end {
		return []batchv1.JobPhase{batchv1.JobCompleted, batchv1.JobFailed, batchv1.JobTerminated}[random.IntN(3)]
	}
	return []batchv1.JobPhase{batchv1.JobPending, batchv1.JobRunning, batchv1.JobRestarting}[random.IntN(3)]
}

func someCounts(random *rand.Rand) map[string]batchv1.TaskState {
	out := map[string]batchv1.TaskState{}
	for i := range random.IntN(10) {
		out[fmt.Sprintf("a-task-with-some-name-%d", i)] = batchv1.TaskState{Phase: map[corev1.PodPhase]int32{corev1.PodRunning: 100, corev1.PodFailed: 100}}
	}
	return out
}

func TestPlan_ReportsOutputsThatStepOmits(t *testing.T) {
	s := startFlow(t, steps(after("a")))
	s.job("a").Phase = batchv1.JobCompleted
	w := s.input()
	w.Outputs = map[types.UID]stepjob.Outputs{s.job("a").UID: {Values: map[string]string{"x": "1"}, Omission: "2 of its outputs are omitted: y, z"}}
	out := Plan(s.now, w)
	if st := out.Status.Steps[0]; st.Outputs["x"] != "1" || st.Reason != ReasonOutputsOmitted || st.Message != "2 of its outputs are omitted: y, z" {
		t.Errorf("step %+v", st)
	}
	want := Event{Warning: true, Reason: ReasonOutputsOmitted, Message: "step a: 2 of its outputs are omitted: y, z", Job: "f-a"}
	if len(out.Events) != 1 || out.Events[0] != want {
		t.Errorf("events %+v, want %+v", out.Events, want)
	}
	s.flow.Status = *out.Status
	w = s.input()
	if again := Plan(s.now.Add(time.Hour), w); len(again.Events) != 0 {
		t.Errorf("reported again: %+v", again.Events)
	}
}

func TestPlan_OmitsOutputsBeyondLimit(t *testing.T) {
	var spec flowv1.JobFlowSpec
	for i := range 40 {
		spec.Flows = append(spec.Flows, after(fmt.Sprintf("s%02d", i)))
	}
	s := startFlow(t, spec)
	w := s.input()
	w.Outputs = map[types.UID]stepjob.Outputs{}
	for id, j := range w.Jobs {
		j.Phase = batchv1.JobCompleted
		w.Outputs[id] = stepjob.Outputs{Values: map[string]string{"x": strings.Repeat("x", stepjob.MaxOutputsBytes-1)}}
	}
	out := Plan(s.now.Add(time.Minute), w)
	s.flow.Status = *out.Status
	kept := 0
	for _, st := range s.flow.Status.Steps {
		switch {
		case st.Outputs != nil && st.Reason == "":
			kept++
		case st.Outputs != nil || st.Reason != ReasonOutputsOmitted || !strings.HasPrefix(st.Message, "its outputs are omitted: the outputs of all steps of a flow are limited to 256 KiB;"):
			t.Errorf("step %s: %s: %s", st.Name, st.Reason, st.Message)
		}
	}
	if kept != 31 || len(out.Events) != 40-kept || out.Events[0].Reason != ReasonOutputsOmitted || !out.Events[0].Warning || out.Events[0].Job == "" {
		t.Errorf("%d are kept, events %+v", kept, out.Events)
	}
	for id, j := range s.jobs {
		j.Phase = batchv1.JobCompleted
		s.visible[id] = true
	}
	w2 := s.input()
	w2.Outputs = w.Outputs
	if again := Plan(s.now.Add(time.Hour), w2); len(again.Events) != 0 || again.Status != nil && len(again.Status.Steps) != 40 {
		t.Errorf("reported again: %+v", again.Events)
	}
}
