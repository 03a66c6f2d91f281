package jobflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/jobflow/probe"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// after returns a step that depends on others.
func after(name string, targets ...string) flowv1.Flow {
	f := flowv1.Flow{Name: name}
	if len(targets) > 0 {
		f.DependsOn = &flowv1.DependsOn{Targets: targets}
	}
	return f
}

// stepWhen returns a step that waits until others reach a condition.
func stepWhen(c flowv1.DependencyCondition, name string, targets ...string) flowv1.Flow {
	f := after(name, targets...)
	f.DependsOn.Condition = c
	return f
}

func steps(all ...flowv1.Flow) flowv1.JobFlowSpec { return flowv1.JobFlowSpec{Flows: all} }

// policed returns steps under a failure policy.
func policed(p flowv1.FailurePolicy, all ...flowv1.Flow) flowv1.JobFlowSpec {
	return flowv1.JobFlowSpec{Flows: all, FailurePolicy: p}
}

func retried(f flowv1.Flow, limit int32, backoff time.Duration) flowv1.Flow {
	f.Retry = &flowv1.StepRetry{Limit: limit, Backoff: batchv1.NewDuration(backoff)}
	return f
}

func startFlow(t *testing.T, spec flowv1.JobFlowSpec) *sim {
	t.Helper()
	s := newSim(spec)
	s.settle()
	return s
}

func (s *sim) checkJobs(t *testing.T, phase flowv1.Phase, jobs ...string) {
	t.Helper()
	for i := range jobs {
		jobs[i] = JobName("f", jobs[i])
	}
	if got := s.names(); s.flow.Status.State.Phase != phase || !slices.Equal(got, jobs) {
		t.Errorf("%s with jobs %v, want %s with %v; status %+v", s.flow.Status.State.Phase, got, phase, jobs, s.flow.Status)
	}
}

func (s *sim) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.flow.Status.FlowConditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func TestPlan_FailurePolicy(t *testing.T) {
	all := []flowv1.Flow{after("a"), after("b"), after("c", "b"), after("d", "a")}
	for _, c := range []struct {
		policy flowv1.FailurePolicy
		want   string
	}{
		{"", "Failed [f-a f-b] b=Running"},
		{flowv1.Finish, "Failed [f-a f-b] b=Running"},
		{flowv1.FailFast, "Failed [f-a f-b] b=Terminated"},
		{flowv1.Continue, "Running [f-a f-b] b=Running"},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			s := startFlow(t, policed(c.policy, all...))
			s.set("b", batchv1.JobRunning)
			s.set("a", batchv1.JobFailed)
			if got := fmt.Sprintf("%s %v b=%s", s.flow.Status.State.Phase, s.names(), s.job("b").Phase); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if c.policy != flowv1.Continue {
				return
			}
			s.set("b", batchv1.JobCompleted)
			s.checkJobs(t, flowv1.Running, "a", "b", "c")
			s.set("c", batchv1.JobCompleted)
			s.checkJobs(t, flowv1.Failed, "a", "b", "c")
		})
	}
}

func TestPlan_DependencyConditions(t *testing.T) {
	t.Run("Failed: a clean-up runs after a failure, and the flow fails once it has", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), stepWhen(flowv1.WhenFailed, "repair", "a"), after("notify", "repair"), after("b", "a")))
		s.set("a", batchv1.JobFailed)
		s.checkJobs(t, flowv1.Pending, "a", "repair")
		s.set("repair", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Running, "a", "notify", "repair")
		s.set("notify", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Failed, "a", "notify", "repair")
	})
	t.Run("Failed: without a failure it is skipped, and the flow succeeds", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), stepWhen(flowv1.WhenFailed, "repair", "a")))
		s.set("a", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Succeed, "a")
		if st := s.step("repair"); !st.Skipped || st.Reason != ReasonConditionNotMet {
			t.Errorf("step %+v", st)
		}
	})
	t.Run("Finished: whatever the end, and also of what never ran", func(t *testing.T) {
		for _, end := range []batchv1.JobPhase{batchv1.JobFailed, batchv1.JobCompleted} {
			s := startFlow(t, steps(after("a"), after("b", "a"), stepWhen(flowv1.WhenFinished, "last", "a", "b")))
			s.set("a", end)
			if end == batchv1.JobCompleted {
				s.set("b", batchv1.JobCompleted)
			}
			s.set("last", batchv1.JobCompleted)
			if want := map[batchv1.JobPhase]flowv1.Phase{batchv1.JobFailed: flowv1.Failed, batchv1.JobCompleted: flowv1.Succeed}[end]; s.flow.Status.State.Phase != want {
				t.Errorf("after %s: %s", end, s.flow.Status.State.Phase)
			}
		}
	})
	t.Run("Running: as soon as the target runs", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), stepWhen(flowv1.WhenRunning, "b", "a")))
		s.checkJobs(t, flowv1.Pending, "a")
		s.set("a", batchv1.JobRunning)
		s.checkJobs(t, flowv1.Running, "a", "b")
	})
}

func TestPlan_RetriesFailedSteps(t *testing.T) {
	s := startFlow(t, steps(retried(after("a"), 2, 20*time.Second), after("b", "a")))
	first := s.job("a").UID
	s.job("a").Phase = batchv1.JobFailed
	out := s.look()
	if !out.RequeueAt.Equal(s.now.Add(20*time.Second)) || s.step("a").NextRetryTime == nil {
		t.Fatalf("requeue at %s, step %+v", out.RequeueAt, s.step("a"))
	}
	s.checkJobs(t, flowv1.Pending, "a")
	s.now = s.now.Add(20 * time.Second)
	if out = s.look(); len(out.Delete) != 1 || !out.Delete[0].Foreground || len(out.Create) != 0 {
		t.Fatalf("actions %+v, want only the deletion of the old Job", out)
	}
	s.settle()
	if j := s.job("a"); j.UID == first || s.step("a").Retries != 1 {
		t.Fatalf("step %+v", s.step("a"))
	}
	s.job("a").Phase = batchv1.JobTerminated
	if out = s.look(); !out.RequeueAt.Equal(s.now.Add(40 * time.Second)) {
		t.Errorf("the second delay ends at %s, now is %s", out.RequeueAt, s.now)
	}
	s.settle()
	s.set("a", batchv1.JobFailed)
	s.checkJobs(t, flowv1.Failed, "a")
	if got := s.step("a").Retries; got != 2 {
		t.Errorf("%d retries", got)
	}
}

func TestRetryBackoff_IsAtMostAnHour(t *testing.T) {
	for retries, want := range map[int32]time.Duration{0: 10 * time.Second, 3: 80 * time.Second, 90: time.Hour} {
		if got := retryBackoff(&flowv1.StepRetry{}, retries); got != want {
			t.Errorf("after %d: %s", retries, got)
		}
	}
}

func TestPlan_RetriesOnRequest(t *testing.T) {
	spec := policed(flowv1.Continue, after("a"), after("b"), after("c", "b"), after("d", "a", "c"))
	fresh := func(t *testing.T) *sim {
		s := startFlow(t, spec)
		s.set("a", batchv1.JobCompleted)
		s.set("b", batchv1.JobFailed)
		s.checkJobs(t, flowv1.Failed, "a", "b")
		return s
	}
	t.Run("what failed runs again, what succeeded is kept", func(t *testing.T) {
		s := fresh(t)
		a, b := s.job("a").UID, s.job("b").UID
		s.edit(func(f *flowv1.JobFlowSpec) { f.Retry = &flowv1.RetryRequest{Generation: 1} })
		s.settle()
		if s.job("a").UID != a || s.job("b").UID == b || s.flow.Status.Retry != 1 || s.flow.Status.CompletionTime != nil {
			t.Fatalf("status %+v", s.flow.Status)
		}
		s.set("b", batchv1.JobCompleted)
		s.set("c", batchv1.JobCompleted)
		s.set("d", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Succeed, "a", "b", "c", "d")
		if isConditionTrue(s.flow.Status.FlowConditions, flowv1.ConditionFailed) || !slices.Equal(s.ended, []flowv1.Phase{flowv1.Failed, flowv1.Succeed}) {
			t.Errorf("conditions %+v, counted %v", s.flow.Status.FlowConditions, s.ended)
		}
	})
	t.Run("named steps run again, with all that depends on them", func(t *testing.T) {
		s := startFlow(t, spec)
		for _, name := range []string{"a", "b", "c", "d"} {
			s.set(name, batchv1.JobCompleted)
		}
		kept, again := s.job("a").UID, s.job("c").UID
		s.edit(func(f *flowv1.JobFlowSpec) {
			f.Retry = &flowv1.RetryRequest{Generation: 4, Flows: []string{"c", "nosuch"}}
		})
		s.settle()
		s.checkJobs(t, flowv1.Running, "a", "b", "c")
		if s.job("a").UID != kept || s.job("c").UID == again {
			t.Error("the wrong Jobs were kept")
		}
		if !slices.ContainsFunc(s.events, func(e Event) bool { return strings.Contains(e.Message, "there is no step nosuch") }) {
			t.Errorf("events %v", s.events)
		}
	})
	t.Run("it waits while the flow is to be canceled", func(t *testing.T) {
		s := fresh(t)
		s.edit(func(f *flowv1.JobFlowSpec) { f.Retry, f.Cancel = &flowv1.RetryRequest{Generation: 1}, true })
		s.settle()
		s.checkJobs(t, flowv1.Failed, "a", "b")
		s.edit(func(f *flowv1.JobFlowSpec) { f.Cancel = false })
		s.settle()
		if s.flow.Status.Retry != 1 || s.flow.Status.State.Phase == flowv1.Failed {
			t.Errorf("status %+v", s.flow.Status)
		}
	})
	t.Run("a write that is lost does nothing twice", func(t *testing.T) {
		s := fresh(t)
		s.edit(func(f *flowv1.JobFlowSpec) { f.Retry = &flowv1.RetryRequest{Generation: 1} })
		s.drop = func() bool { return true }
		if out := s.look(); len(out.Delete)+len(out.Create) > 0 {
			t.Errorf("before status.retry records the retry: %+v", out)
		}
	})
}

// A step that needs a running target neither starts nor is retried once the target has
// ended.
func TestPlan_StartsNoStepWhoseTargetHasEnded(t *testing.T) {
	t.Run("it is not retried, and has failed", func(t *testing.T) {
		s := startFlow(t, policed(flowv1.Continue, after("a"), retried(stepWhen(flowv1.WhenRunning, "b", "a"), 1, 30*time.Minute), stepWhen(flowv1.WhenFailed, "c", "b")))
		s.set("a", batchv1.JobRunning)
		s.set("b", batchv1.JobFailed)
		s.checkJobs(t, flowv1.Running, "a", "b")
		s.set("a", batchv1.JobFailed)
		s.now = s.now.Add(time.Hour)
		s.settle()
		s.set("c", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Failed, "a", "b", "c")
	})
	t.Run("nor beside what is called off in this moment", func(t *testing.T) {
		s := startFlow(t, policed(flowv1.FailFast, after("a"), after("x"), after("y"), stepWhen(flowv1.WhenFinished, "d", "y"), stepWhen(flowv1.WhenRunning, "b", "a", "d")))
		s.set("a", batchv1.JobRunning)
		s.set("y", batchv1.JobCompleted)
		s.job("d").Phase = batchv1.JobRunning
		s.set("x", batchv1.JobFailed)
		s.set("d", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Failed, "a", "d", "x", "y")
	})
}

func TestPlan_StartsNoStepWhenSuspended(t *testing.T) {
	s := startFlow(t, steps(after("a"), after("b", "a")))
	s.edit(func(f *flowv1.JobFlowSpec) { f.Suspend = true })
	s.set("a", batchv1.JobCompleted)
	s.checkJobs(t, flowv1.Running, "a")
	if !isConditionTrue(s.flow.Status.FlowConditions, flowv1.ConditionSuspended) {
		t.Errorf("conditions %+v", s.flow.Status.FlowConditions)
	}
	s.edit(func(f *flowv1.JobFlowSpec) { f.Suspend = false })
	s.settle()
	s.checkJobs(t, flowv1.Running, "a", "b")
	if isConditionTrue(s.flow.Status.FlowConditions, flowv1.ConditionSuspended) {
		t.Errorf("conditions %+v", s.flow.Status.FlowConditions)
	}
}

func TestPlan_SuspendsFlowOfAbortedJob(t *testing.T) {
	s := startFlow(t, steps(after("a"), after("b"), after("c", "b")))
	s.set("a", batchv1.JobAborted)
	s.set("b", batchv1.JobCompleted)
	s.checkJobs(t, flowv1.Running, "a", "b")
	if c := s.condition(flowv1.ConditionSuspended); c.Reason != "JobAborted" {
		t.Errorf("condition %+v", c)
	}
	s.set("a", batchv1.JobRestarting)
	s.checkJobs(t, flowv1.Running, "a", "b", "c")
	s.set("a", batchv1.JobCompleted)
	s.set("c", batchv1.JobCompleted)
	s.checkJobs(t, flowv1.Succeed, "a", "b", "c")
}

func TestPlan_CancelsFlow(t *testing.T) {
	s := startFlow(t, steps(after("a"), after("b"), after("c", "a")))
	s.set("a", batchv1.JobRunning)
	s.edit(func(f *flowv1.JobFlowSpec) { f.Cancel = true })
	out := s.look()
	if len(out.Stop) != 2 || s.flow.Status.State.Phase != flowv1.Terminating {
		t.Fatalf("%s, stops %v", s.flow.Status.State.Phase, out.Stop)
	}
	s.settle()
	s.checkJobs(t, flowv1.Failed, "a", "b")
	if c := s.condition(flowv1.ConditionFailed); c.Reason != reasonCanceled || len(s.ended) != 1 {
		t.Errorf("condition %+v, counted %v", c, s.ended)
	}
	if want := []Event{{Reason: "Canceled", Message: "the flow was canceled: spec.cancel is true"}}; !slices.Equal(s.events, want) {
		t.Errorf("events %+v, want %+v", s.events, want)
	}
}

func TestPlan_CancelStopsRunningJobsOfFailedFlow(t *testing.T) {
	s := startFlow(t, steps(after("a"), after("b")))
	s.set("b", batchv1.JobRunning)
	s.set("a", batchv1.JobFailed)
	s.checkJobs(t, flowv1.Failed, "a", "b")
	s.edit(func(f *flowv1.JobFlowSpec) { f.Cancel = true })
	s.settle()
	if s.job("b").Phase != batchv1.JobTerminated || s.flow.Status.State.Phase != flowv1.Failed || len(s.ended) != 1 {
		t.Errorf("b is %s, the flow %s, counted %v", s.job("b").Phase, s.flow.Status.State.Phase, s.ended)
	}
	if last := s.events[len(s.events)-1]; len(s.events) != 2 || s.events[0].Reason != "Failed" || last.Reason != "Canceled" || last.Warning {
		t.Errorf("events %+v, want Failed and then Canceled", s.events)
	}
}

func TestPlan_RepeatsStopRequests(t *testing.T) {
	s := startFlow(t, steps(after("a")))
	s.edit(func(f *flowv1.JobFlowSpec) { f.Cancel = true })
	w := s.input()
	w.StopRequestedAt = map[types.UID]time.Time{s.job("a").UID: s.now}
	if out := Plan(s.now.Add(time.Second), w); len(out.Stop) != 0 || out.RequeueAt.IsZero() {
		t.Errorf("stops %v, requeue at %s", out.Stop, out.RequeueAt)
	}
	if out := Plan(s.now.Add(stopRetryInterval), w); len(out.Stop) != 1 {
		t.Errorf("stops %v", out.Stop)
	}
}

func TestPlan_EvaluatesWhen(t *testing.T) {
	when := func(f flowv1.Flow, expression string) flowv1.Flow {
		f.When = expression
		return f
	}
	t.Run("a step that is not wanted is skipped, and others go on", func(t *testing.T) {
		spec := steps(after("a"), when(after("b", "a"), "params.mode == 'full'"), after("c", "b"))
		spec.Params = map[string]string{"mode": "quick"}
		s := startFlow(t, spec)
		s.set("a", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Running, "a", "c")
		if st := s.step("b"); !st.Skipped || st.Reason != ReasonWhenFalse {
			t.Errorf("step %+v", st)
		}
		s.set("c", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Succeed, "a", "c")
	})
	t.Run("it may ask what others have put out", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), when(after("b", "a"), "double(flows.a.outputs.accuracy) > 0.9")))
		s.job("a").Phase = batchv1.JobCompleted
		w := s.input()
		w.Outputs = map[types.UID]stepjob.Outputs{s.job("a").UID: {Values: map[string]string{"accuracy": "0.95"}}}
		out := Plan(s.now, w)
		if len(out.Create) != 1 || out.Status.Steps[0].Outputs["accuracy"] != "0.95" {
			t.Errorf("creates %v, status %+v", out.Create, out.Status)
		}
	})
	t.Run("one that cannot be evaluated fails its step", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), when(after("b", "a"), "double(flows.a.outputs.accuracy) > 0.9")))
		s.set("a", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Failed, "a")
		if st := s.step("b"); st.Reason != ReasonWhenFailed || !strings.Contains(st.Message, "accuracy") {
			t.Errorf("step %+v", st)
		}
	})
	t.Run("one that does not compile starts nothing and is reported", func(t *testing.T) {
		s := startFlow(t, steps(when(after("a"), "params.x +")))
		s.checkJobs(t, flowv1.Pending)
		if c := s.condition(flowv1.ConditionValid); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "does not compile") {
			t.Errorf("condition %+v", c)
		}
	})
}

func TestPlan_WaitsForProbe(t *testing.T) {
	b := after("b", "a")
	b.DependsOn.Probe = &flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{Port: 80}}}
	s := startFlow(t, steps(after("a"), b))
	s.job("a").Phase = batchv1.JobRunning
	s.settle()
	plan := func(r probe.Result) Actions {
		w := s.input()
		w.Probes = map[string]probe.Result{"b": r}
		return Plan(s.now.Add(time.Hour), w)
	}
	out := plan(probe.Result{State: probe.Waiting, Message: "no"})
	if ask := out.ProbeTargets["b"]; len(out.Create) != 0 || len(ask.Jobs) != 1 || ask.Jobs[0].UID != s.job("a").UID {
		t.Errorf("probe target %+v, creates %v", ask, out.Create)
	}
	if c := meta.FindStatusCondition(out.Status.FlowConditions, ConditionProbesReady); c == nil || c.Status != metav1.ConditionFalse || c.Message != "step b: no" {
		t.Errorf("condition %+v", c)
	}
	if out = plan(probe.Result{State: probe.Ready}); len(out.Create) != 1 {
		t.Errorf("creates %v", out.Create)
	}
	if out = plan(probe.Result{State: probe.Failed, Message: "refused"}); out.Status.State.Phase != flowv1.Failed {
		t.Errorf("status %+v", out.Status)
	}
}

func TestPlan_ProbeWithoutEntriesWaitsForCompletion(t *testing.T) {
	for _, p := range []*flowv1.Probe{{}, {HTTPGetList: []flowv1.HTTPGet{}, TCPSocketList: []flowv1.TCPSocket{}, TaskStatusList: []flowv1.TaskStatus{}}} {
		b := after("b", "a")
		b.DependsOn.Probe = p
		s := startFlow(t, steps(after("a"), b))
		s.set("a", batchv1.JobRunning)
		s.checkJobs(t, flowv1.Running, "a")
		s.job("a").Phase = batchv1.JobCompleted
		if out := s.look(); len(out.Create) != 1 || len(out.ProbeTargets) != 0 {
			t.Errorf("creates %v, probes %v; want the step without a probe", out.Create, out.ProbeTargets)
		}
		if len(s.step("b").Reason) != 0 || s.condition(ConditionProbesReady).Type != "" {
			t.Errorf("step %+v, condition %+v", s.step("b"), s.condition(ConditionProbesReady))
		}
	}
}

func TestPlan_ProbesTargets(t *testing.T) {
	probing := func(name, task string, targets ...string) flowv1.Flow {
		f := after(name, targets...)
		f.DependsOn.Probe = &flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{TaskName: task, Port: 80}}}
		return f
	}
	t.Run("targets that have ended are asked for the last time", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), probing("b", "main", "a")))
		for phase, over := range map[batchv1.JobPhase]bool{batchv1.JobRunning: false, batchv1.JobCompleted: true} {
			s.job("a").Phase, s.job("a").Tasks = phase, []string{"main"}
			if ask := Plan(s.now, s.input()).ProbeTargets["b"]; ask.Ended != over || len(ask.Jobs) != 1 {
				t.Errorf("%s: probe target %+v", phase, ask)
			}
		}
	})
	t.Run("one that has completed and is gone is not waited for", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), probing("b", "main", "a")))
		s.set("a", batchv1.JobCompleted)
		s.remove(s.job("a").UID)
		if ask := s.look().ProbeTargets["b"]; !ask.Ended || len(ask.Jobs) != 0 {
			t.Errorf("probe target %+v", ask)
		}
		w := s.input()
		w.Probes = map[string]probe.Result{"b": {State: probe.Failed, Message: "no Pod answers"}}
		if out := Plan(s.now, w); out.Status.State.Phase != flowv1.Failed || out.Status.Steps[len(out.Status.Steps)-1].Reason != ReasonProbeFailed {
			t.Errorf("status %+v", out.Status)
		}
	})
	t.Run("a task that no target has is reported, and can be fixed", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), after("c"), probing("b", "mian", "a")))
		s.job("a").Tasks = []string{"main", "ps"}
		s.set("a", batchv1.JobRunning)
		const want = "step b: spec.flows[b].dependsOn.probe.tcpSocketList[0].taskName: the Jobs of its targets have no task mian; use one of [main ps], or omit it to check the Pods of all tasks"
		if c := s.condition(flowv1.ConditionValid); c.Status != metav1.ConditionFalse || c.Reason != ReasonProbeInvalid || c.Message != want {
			t.Errorf("condition %+v", c)
		}
		s.edit(func(f *flowv1.JobFlowSpec) { f.Flows[2].DependsOn.Probe.TCPSocketList[0].TaskName = "main" })
		if ask := s.look().ProbeTargets["b"]; len(ask.Jobs) != 1 || !isConditionTrue(s.flow.Status.FlowConditions, flowv1.ConditionValid) {
			t.Errorf("probe target %+v, conditions %+v", ask, s.flow.Status.FlowConditions)
		}
	})
	t.Run("targets that were all skipped are not asked", func(t *testing.T) {
		a := after("a")
		a.When = "false"
		s := startFlow(t, steps(a, probing("b", "main", "a")))
		s.checkJobs(t, flowv1.Running, "b")
	})
}

func TestPlan_RunsRobotSteps(t *testing.T) {
	f := after("drive")
	f.TemplateRef = &flowv1.TemplateReference{APIGroup: flowv1.TemplateGroupRobots, Name: "tour"}
	s := newSim(steps(f))
	out := s.look()
	if len(out.Create) != 1 || out.Create[0].Robots == nil || out.Create[0].Robots.Name != "f-drive" || out.Create[0].Robots.Annotations[flowv1.KeyCreatedByJobTemplate] != "ns.tour" {
		t.Fatalf("creates %+v", out.Create)
	}
	for state, want := range map[string]batchv1.JobPhase{
		"": "", "under-construction": batchv1.JobPending, "pending": batchv1.JobPending, "running": batchv1.JobRunning,
		"pause-requested": batchv1.JobRunning, "paused": batchv1.JobPending, "cancel-requested": batchv1.JobRunning,
		"canceled": batchv1.JobFailed, "requeueing": batchv1.JobPending, "completed": batchv1.JobCompleted, "failed": batchv1.JobFailed,
	} {
		j := &robotv1.Job{Status: robotv1.JobStatus{State: state, TaskCounts: robotv1.TaskCounts{TotalTasks: 3, PendingTasks: 1, RunningTasks: 2}}}
		got := summarizeRobotJob(j)
		if got.Phase != want || got.Counts[RobotTasks].Phase["Running"] != 2 || got.Counts[RobotTasks].Phase["Pending"] != 1 {
			t.Errorf("state %q: phase %q, counts %v", state, got.Phase, got.Counts)
		}
	}
}

func TestPlan_DeletesExpiredFlow(t *testing.T) {
	spec := steps(after("a"), after("b"))
	ttl := int32(60)
	spec.TTLSecondsAfterFinished = &ttl
	s := startFlow(t, spec)
	s.set("b", batchv1.JobRunning)
	s.set("a", batchv1.JobFailed)
	s.now = s.now.Add(time.Hour)
	if out := s.look(); out.DeleteFlow {
		t.Error("the flow is deleted while one of its Jobs is running")
	}
	s.job("b").Phase = batchv1.JobCompleted
	if out := s.look(); !out.DeleteFlow {
		t.Error("the expired flow is not deleted")
	}
	spec.Flows = spec.Flows[:1]
	s = startFlow(t, spec)
	s.job("a").Phase = batchv1.JobCompleted
	s.look()
	if out := s.look(); out.DeleteFlow || !out.RequeueAt.Equal(s.flow.Status.CompletionTime.Add(time.Minute)) {
		t.Errorf("deletes the flow: %v, requeue at %s", out.DeleteFlow, out.RequeueAt)
	}
}

func TestPlan_DeletesNothingBeforeItIsArchived(t *testing.T) {
	spec := steps(after("a"))
	ttl := int32(0)
	spec.TTLSecondsAfterFinished, spec.JobRetainPolicy = &ttl, flowv1.Delete
	s := startFlow(t, spec)
	s.archives = true
	s.set("a", batchv1.JobCompleted)
	s.now = s.now.Add(time.Hour)
	if out := s.look(); out.DeleteFlow || len(out.Delete) > 0 {
		t.Errorf("deletes the flow: %v, deletes jobs %v", out.DeleteFlow, out.Delete)
	}
	s.flow.Status.FlowConditions = append(s.flow.Status.FlowConditions, metav1.Condition{
		Type: flowv1.ConditionArchived, Status: metav1.ConditionTrue, ObservedGeneration: s.flow.Status.ObservedGeneration,
	})
	if out := s.look(); !out.DeleteFlow || len(out.Delete) != 1 {
		t.Errorf("deletes the flow: %v, deletes jobs %v", out.DeleteFlow, out.Delete)
	}
}

func TestPlan_WritesOnlyChangedStatus(t *testing.T) {
	s := startFlow(t, steps(after("a"), after("b", "a")))
	s.set("a", batchv1.JobRunning)
	had := s.writes
	for range 5 {
		s.look()
	}
	if s.writes != had {
		t.Errorf("%d writes of an unchanged status", s.writes-had)
	}
	s.job("a").Counts = map[string]batchv1.TaskState{"main": {}}
	if out := s.look(); out.Status != nil || out.RequeueAt.After(s.now.Add(minStatusInterval)) || out.RequeueAt.IsZero() {
		t.Errorf("counts are written within a second: %+v", out.Status)
	}
}

func TestPlan_WritesPhasesOfLargeFlowsSeldom(t *testing.T) {
	const changes = 50 // one each 100 ms
	for _, c := range []struct{ steps, want int }{
		{changes, changes / 3},                      // once in 250 ms
		{smallFlow + 1, changes},                    // once in 105 ms, as often as it changes
		{200, changes / 10}, {1000, changes/10 + 1}, // once a second
	} {
		t.Run(fmt.Sprint(c.steps), func(t *testing.T) {
			s := startFlow(t, parallelSteps(c.steps))
			s.set("s0", batchv1.JobRunning)
			had := s.writes
			for i := range changes {
				s.job(fmt.Sprint("s", i%c.steps)).Phase = []batchv1.JobPhase{batchv1.JobRunning, batchv1.JobPending, batchv1.JobCompleted}[i/c.steps]
				s.now = s.now.Add(100 * time.Millisecond)
				s.look()
			}
			if n := s.writes - had; n > c.want+1 || n < c.want/2 {
				t.Errorf("%d writes in five seconds, want about %d", n, c.want)
			}
		})
	}
}

func TestPlan_WritesEndOfLargeFlowAtOnce(t *testing.T) {
	s := startFlow(t, parallelSteps(smallFlow+1))
	s.set("s0", batchv1.JobRunning)
	if s.set("s1", batchv1.JobFailed); s.flow.Status.State.Phase != flowv1.Failed {
		t.Error("the failure of a Job is not written at once")
	}
}

// If the controller restarts before the end of a deleted Job is recorded, its step runs again.
func TestPlan_WritesDeletedJobOfLargeFlowAtOnce(t *testing.T) {
	s := startFlow(t, parallelSteps(smallFlow+1))
	s.set("s0", batchv1.JobRunning)
	s.job("s1").Phase = batchv1.JobCompleted
	if out := s.look(); out.Status != nil {
		t.Fatal("a phase is written at once")
	}
	s.remove(s.job("s1").UID)
	if out := s.look(); out.Status == nil {
		t.Error("the deletion of a Job is not written at once")
	}
	if s.job("s2").Phase = batchv1.JobCompleted; s.look().Status != nil {
		t.Error("after the deletion is written, a phase is written at once")
	}
}

// Jobs with a time to live may be deleted one by one.
func TestPlan_DeletionOfRecordedJobIsNotUrgent(t *testing.T) {
	s := startFlow(t, parallelSteps(smallFlow+1))
	s.set("s0", batchv1.JobCompleted)
	s.job("s1").Phase = batchv1.JobCompleted
	if s.remove(s.job("s0").UID); s.look().Status != nil {
		t.Error("the phase of another Job is written at once")
	}
}

// The status of a larger flow lacks the latest Jobs. After a restart they are found by their names.
func TestPlan_LargeFlowStartsNoStepTwiceAfterRestart(t *testing.T) {
	const n = 2 * smallFlow
	spec := steps(after("s0"))
	for i := 1; i < n; i++ {
		spec.Flows = append(spec.Flows, after(fmt.Sprint("s", i), fmt.Sprint("s", i-1)))
	}
	for passes := 1; passes < 8; passes++ { // between restarts
		s, made := newSim(spec), map[string]int{}
		s.made = func(step string, _ *Job) { made[step]++ }
		for pass := 0; s.flow.Status.State.Phase != flowv1.Succeed && pass < 10*n; pass++ {
			if s.show(); pass%passes == 0 {
				s.restart()
			}
			s.look()
			for _, j := range s.jobs {
				j.Phase = batchv1.JobCompleted
			}
			s.now = s.now.Add(10 * time.Millisecond)
		}
		if s.flow.Status.State.Phase != flowv1.Succeed || s.n != n || len(made) != n {
			t.Errorf("restart after %d passes: %s with %d Jobs of %d steps", passes, s.flow.Status.State.Phase, s.n, len(made))
		}
		if passes == 7 && s.writes > n/2 {
			t.Errorf("%d writes: none was deferred", s.writes)
		}
	}
}

func parallelSteps(n int) (spec flowv1.JobFlowSpec) {
	for i := range n {
		spec.Flows = append(spec.Flows, after(fmt.Sprint("s", i)))
	}
	return spec
}

func TestPlan_WaitsForDeleteEventOfMissingJob(t *testing.T) {
	s := startFlow(t, steps(after("a")))
	s.set("a", batchv1.JobRunning)
	id := s.job("a").UID
	delete(s.jobs, id)
	if out := s.look(); out.Status != nil || !out.RequeueAt.Equal(s.now.Add(missingGrace)) {
		t.Errorf("status %+v, requeue at %s", out.Status, out.RequeueAt)
	}
	s.now = s.now.Add(missingGrace)
	s.look()
	if st := s.step("a"); s.flow.Status.State.Phase != flowv1.Failed || st.Reason != ReasonJobDeleted {
		t.Errorf("status %+v", s.flow.Status)
	}
}

// Otherwise the condition Valid would become true once a minute.
func TestPlan_StaysInvalidWhileRejectedJobIsRetried(t *testing.T) {
	for reason, set := range map[string]func(*Input){
		ReasonNameTaken:   func(w *Input) { w.TakenNames = map[string]bool{"f-a": true} },
		ReasonJobRejected: func(w *Input) { w.Rejected = map[string]string{"a": "no"} },
	} {
		t.Run(reason, func(t *testing.T) {
			s := newSim(steps(after("a")))
			w := s.input()
			set(&w)
			s.flow.Status = *Plan(s.now, w).Status
			if c := s.condition(flowv1.ConditionValid); c.Status != metav1.ConditionFalse || c.Reason != reason {
				t.Fatalf("condition %+v", c)
			}
			out := Plan(s.now.Add(rejectedRetryDelay), s.input())
			if len(out.Create) != 1 {
				t.Fatalf("the Job is not created again: %+v", out)
			}
			if out.Status != nil {
				s.flow.Status = *out.Status
			}
			if c := s.condition(flowv1.ConditionValid); c.Status != metav1.ConditionFalse || c.Reason != reason {
				t.Errorf("while the Job is created again: condition %+v", c)
			}
			s.settle()
			if c := s.condition(flowv1.ConditionValid); c.Status != metav1.ConditionTrue {
				t.Errorf("after the Job was created: condition %+v", c)
			}
		})
	}
}

// A Job may be created and deleted before the status records it.
func TestPlan_IgnoresEndOfEarlierRun(t *testing.T) {
	s := startFlow(t, steps(retried(after("a"), 1, time.Second)))
	first := s.job("a").UID
	s.job("a").Phase = batchv1.JobFailed
	s.look()
	s.remove(first)
	delete(s.gone, first)
	s.now = s.now.Add(time.Second)
	s.drop = func() bool { return true }
	s.look()
	second := s.job("a").UID
	if second == first || s.step("a").JobUID != string(first) || s.flow.Status.IsJobRecorded("f-a", string(second)) {
		t.Fatalf("run %s after %s, status %+v", second, first, s.flow.Status)
	}
	s.drop = nil
	s.job("a").Phase = batchv1.JobRunning
	s.remove(second)
	s.settle()
	if st := s.step("a"); st.JobUID != string(second) || st.Reason != ReasonJobDeleted || s.flow.Status.State.Phase != flowv1.Failed {
		t.Errorf("step %+v, phase %s", st, s.flow.Status.State.Phase)
	}
}

func TestPlan_IsDeterministic(t *testing.T) {
	spec := steps(after("e", "c", "d"), after("d", "b"), after("c", "b"), after("b", "a"), after("a"))
	one, two := startFlow(t, spec), startFlow(t, spec)
	for _, name := range []string{"a", "b", "d", "c"} {
		one.set(name, batchv1.JobCompleted)
		two.set(name, batchv1.JobCompleted)
	}
	if a, b := fmt.Sprintf("%+v", one.flow.Status.CompletedJobs), fmt.Sprintf("%+v", two.flow.Status.CompletedJobs); a != b || a != "[f-d f-c f-b f-a]" {
		t.Errorf("lists %s and %s", a, b)
	}
}

// A retry must not be used up without an effect.
func TestPlan_RetryRunsUnstartedSteps(t *testing.T) {
	again := func(names ...string) func(*flowv1.JobFlowSpec) {
		return func(f *flowv1.JobFlowSpec) {
			f.Cancel, f.Suspend = false, false
			f.Retry = &flowv1.RetryRequest{Generation: 1, Flows: names}
		}
	}
	t.Run("of a flow that was canceled between two steps", func(t *testing.T) {
		s := startFlow(t, steps(after("a"), after("b", "a")))
		s.edit(func(f *flowv1.JobFlowSpec) { f.Suspend = true })
		s.set("a", batchv1.JobCompleted)
		s.edit(func(f *flowv1.JobFlowSpec) { f.Cancel = true })
		s.settle()
		s.checkJobs(t, flowv1.Failed, "a")
		s.edit(again())
		s.settle()
		s.set("b", batchv1.JobCompleted)
		s.checkJobs(t, flowv1.Succeed, "a", "b")
	})
	t.Run("of a step that waits to be run again by itself", func(t *testing.T) {
		s := startFlow(t, steps(retried(after("a"), 3, time.Hour)))
		s.set("a", batchv1.JobFailed)
		first := s.n
		s.edit(again())
		s.settle()
		if s.n == first || s.job("a") == nil || s.job("a").Phase == batchv1.JobFailed {
			t.Errorf("the step still waits: %+v", s.flow.Status.Steps)
		}
	})
	t.Run("there is nothing to run", func(t *testing.T) {
		s := startFlow(t, steps(after("a")))
		s.set("a", batchv1.JobCompleted)
		s.edit(again())
		s.settle()
		s.checkJobs(t, flowv1.Succeed, "a")
		if last := s.events[len(s.events)-1]; last.Reason != "ActionRejected" {
			t.Errorf("the last event is %+v", last)
		}
	})
}

func TestPlan_IgnoresAbortedJobOfRemovedStep(t *testing.T) {
	s := startFlow(t, steps(after("a"), after("x"), after("c", "a")))
	s.set("x", batchv1.JobAborted)
	s.set("a", batchv1.JobCompleted)
	s.checkJobs(t, flowv1.Running, "a", "x")
	s.edit(func(f *flowv1.JobFlowSpec) { f.Flows = slices.Delete(slices.Clone(f.Flows), 1, 2) })
	s.settle()
	s.checkJobs(t, flowv1.Running, "a", "c", "x")
}

// A time that has passed would requeue forever.
func TestMemory_ForgetsRejectionsAfterRetryTime(t *testing.T) {
	m := &memory{
		rejections: map[string]jobRejection{"a": {retryAt: noon}, "b": {retryAt: noon.Add(time.Minute)}},
		takenNames: map[string]time.Time{"f-c": noon.Add(-time.Second)},
	}
	if at := m.takeNextRetryTime(noon); !at.Equal(noon.Add(time.Minute)) {
		t.Errorf("retry time %s, want in a minute", at)
	}
	if at := m.takeNextRetryTime(noon.Add(time.Minute)); !at.IsZero() {
		t.Errorf("retry time %s, want none", at)
	}
}

func TestRecordNewJob_ClearsOutputs(t *testing.T) {
	s := flowv1.StepStatus{Outputs: map[string]string{"x": "1"}, JobUID: "old"}
	if recordNewJob(&s, "new"); s.Outputs != nil || s.JobUID != "new" {
		t.Errorf("%+v", s)
	}
}
