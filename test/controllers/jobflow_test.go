package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestJobFlow tests flows as Volcano's documentation describes them; the test plays the controller
// of their Jobs. TestAdmissionOfJobFlows has the webhook, TestVCJob the Jobs.
func TestJobFlow(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly)
	runCases(t, "flow", s.flows, []testCase[*flows]{
		{"invalid flows are rejected", rejectsInvalidFlows},
		{"steps without dependencies are created at once", createsRoots},
		{"a dependant waits until all of its targets have exactly completed", waitsForAll},
		{"a diamond runs side by side and joins", runsADiamond},
		{"a failed Job fails its flow, and starts nothing more", failsFromRunning},
		{"a failed Job fails a pending flow", func(s *flows) { failsAtOnce(s, batchv1.JobFailed) }},
		{"a terminated Job fails a pending flow", func(s *flows) { failsAtOnce(s, batchv1.JobTerminated) }},
		{"a terminated Job fails a running flow", terminatesFromRunning},
		{"Jobs are in the lists of their phases", listsPhases},
		{"histories and conditions record phases", recordsStepHistory},
		{"a conflict loses no transition, and counts none twice", survivesConflicts},
		{"jobRetainPolicy keeps or deletes the Jobs", retains},
		{"patching the policy after the end deletes the Jobs", retainsLater},
		{"deleting a flow deletes its Jobs", deletesAll},
		{"two flows share templates and nothing else", sharesTemplates},
		{"a changed template affects only later Jobs", changesATemplate},
		{"a missing template delays only its step, until it is created", waitsForATemplate},
		{"a finished Job that is deleted is not run again", keepsWhatFinished},
		{"a Job that ends and is deleted at once has ended", recordsTheEnd},
		{"a Job that is deleted before its end fails its step, unless that is retried", losesAJob},
		{"a Job of another owner with the same name blocks only its step", reportsNameTaken},
		{"a recreated flow does not adopt the Jobs of the previous one", doesNotAdoptOldJobs},
		{"flows with duplicates, removed steps or no steps end", endsOddFlows},
		{"a cycle and an undefined target set a condition, and can be fixed", recoversFromCycle},
		{"a failed flow still updates the states of its Jobs", reportsAfterFailure},
		{"long and dotted names work", takesLongNames},
		{"invalid input is reported and affects no other flow", reportsInvalidInput},
		{"a thousand blocked steps affect no other flow, and run once they are unblocked", holdsAThousand},
	})
}

// TestJobFlow_AfterRestarts stops the manager in the middle of flows.
func TestJobFlow_AfterRestarts(t *testing.T) {
	t.Parallel()
	s := startApart(t, apartServer, flowsOnly, "flow-restarted-0", "flow-restarted-1", "workers", "wide")
	runCasesInTurn(t, "flow-restarted", s.flows, []testCase[*flows]{
		{"a flow whose Jobs ended while no manager ran succeeds", endsWithoutManager},
		{"a restarted manager continues and creates nothing twice", continuesAfterRestart},
	})
	t.Run("several workers", func(t *testing.T) { testSeveralWorkers(t, s) })
}

func rejectsInvalidFlows(s *flows) {
	err := s.Create(s.Context(), &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "x"}, Spec: flowv1.JobFlowSpec{JobRetainPolicy: "burn"}})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.jobRetainPolicy") {
		s.Errorf("an unknown policy: %v", err)
	}
	err = s.Create(s.Context(), &flowv1.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "x"}, Spec: steps(flowv1.Flow{})})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.flows[0].name") {
		s.Errorf("a step without a name: %v", err)
	}
}

func createsRoots(s *flows) {
	first := s.firstPhase()
	f := s.flow("f", steps(after("a"), after("b", "a"), after("c")))
	j := s.vcjob("f-a")
	s.vcjob("f-c")
	from := map[string]string{flowv1.KeyCreatedByJobTemplate: s.name + ".a", flowv1.KeyCreatedByJobFlow: s.name + ".f"}
	if !maps.Equal(j.Labels, from) || !maps.Equal(j.Annotations, from) {
		s.Errorf("labels %v, annotations %v", j.Labels, j.Annotations)
	}
	if o := j.OwnerReferences; len(o) != 1 || o[0].UID != f.UID || !*o[0].Controller || !*o[0].BlockOwnerDeletion ||
		o[0].APIVersion != "flow.volcano.sh/v1alpha1" || o[0].Kind != "JobFlow" || len(j.Finalizers) != 0 {
		s.Errorf("owners %+v", o)
	}
	var template flowv1.JobTemplate
	s.must(s.Get(s.Context(), s.key("a"), &template))
	if !equalSpecs(&j.Spec, &template.Spec) {
		s.Errorf("spec %+v is not the template's %+v", j.Spec, template.Spec)
	}
	if phase := first(); phase != flowv1.Pending {
		s.Errorf("the first status says %q", phase)
	}
	s.await("f", "has its conditions", func(f *flowv1.JobFlow) error {
		if !meta.IsStatusConditionTrue(f.Status.FlowConditions, flowv1.ConditionValid) || f.Status.ObservedGeneration != f.Generation {
			return fmt.Errorf("conditions %+v", f.Status.FlowConditions)
		}
		return nil
	})
	s.only("f-a", "f-c")
	for _, name := range s.vcjobs() {
		s.awaitSaid("f", "Created", fmt.Sprintf("create a job named %s!", name))
	}
	s.dependsOn("a", "f-a")
	s.must(s.Delete(s.Context(), j))
	s.dependsOn("a")
}

// firstPhase watches for the first status of a flow in the space.
func (s *flows) firstPhase() func() flowv1.Phase {
	s.Helper()
	var list flowv1.JobFlowList
	w, err := s.Watch(s.Context(), &list, client.InNamespace(s.name))
	s.must(err)
	return func() flowv1.Phase {
		for e := range w.ResultChan() {
			if f, ok := e.Object.(*flowv1.JobFlow); ok && f.Status.State.Phase != "" {
				w.Stop()
				return f.Status.State.Phase
			}
		}
		return ""
	}
}

// dependsOn waits until a template lists exactly these Jobs.
func (s *flows) dependsOn(template string, jobs ...string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "template "+template+" lists its jobs", func() error {
		var t flowv1.JobTemplate
		if err := s.Get(s.Context(), s.key(template), &t); err != nil {
			return err
		}
		if !slices.Equal(t.Status.JobDependsOnList, jobs) {
			return fmt.Errorf("it lists %v, not %v", t.Status.JobDependsOnList, jobs)
		}
		return nil
	})
}

// equalSpecs compares specs with their defaults, some of which a mutating policy writes into Jobs
// only.
func equalSpecs(a, b *batchv1.JobSpec) bool {
	return equality.Semantic.DeepEqual(vcjob.Defaulted(a), vcjob.Defaulted(b))
}

func waitsForAll(s *flows) {
	s.flow("f", steps(after("a"), after("b"), after("c", "a", "b"), after("d", "b")))
	s.phase("f-b", batchv1.JobRunning, batchv1.JobCompleting)
	s.seen("f", "f-b", batchv1.JobCompleting)
	s.only("f-a", "f-b")
	s.phase("f-a", batchv1.JobCompleted)
	s.seen("f", "f-a", batchv1.JobCompleted)
	s.only("f-a", "f-b")
	s.phase("f-b", batchv1.JobCompleted)
	s.vcjob("f-c")
	s.vcjob("f-d")
	s.phase("f-c", batchv1.JobFailed)
	s.awaitFlow("f", flowv1.Failed)
}

func runsADiamond(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a"), after("c", "b"), after("d", "b"), after("e", "c", "d")))
	s.awaitFlow("f", flowv1.Pending)
	s.phase("f-a", batchv1.JobPending)
	s.seen("f", "f-a", batchv1.JobPending)
	s.awaitFlow("f", flowv1.Pending)
	s.phase("f-a", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	s.phase("f-a", batchv1.JobCompleted)
	s.phase("f-b", batchv1.JobRunning, batchv1.JobCompleted)
	s.vcjob("f-c")
	s.phase("f-d", batchv1.JobRunning, batchv1.JobCompleted)
	s.seen("f", "f-d", batchv1.JobCompleted)
	s.only("f-a", "f-b", "f-c", "f-d")
	s.phase("f-c", batchv1.JobRunning, batchv1.JobCompleted)
	s.phase("f-e", batchv1.JobRunning)
	if f := s.seen("f", "f-e", batchv1.JobRunning); f.Status.State.Phase != flowv1.Running || len(f.Status.CompletedJobs) != 4 {
		s.Errorf("status %+v", f.Status)
	}
	s.phase("f-e", batchv1.JobCompleted)
	f := s.awaitFlow("f", flowv1.Succeed)
	if !meta.IsStatusConditionTrue(f.Status.FlowConditions, flowv1.ConditionComplete) || f.Status.CompletionTime == nil || f.Status.StartTime == nil {
		s.Errorf("status %+v", f.Status)
	}
}

func endsWithoutManager(s *flows) {
	s.stop()
	f := s.flow("f", steps(after("a"), after("b", "a")))
	for _, name := range []string{"a", "b"} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.name, Name: "f-" + name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, flowv1.GroupVersion.WithKind("JobFlow"))},
		}, Spec: podTemplate(s.name, name).Spec}
		s.must(s.Create(s.Context(), j))
		s.phase("f-"+name, batchv1.JobCompleted)
	}
	s.manage(flowsOnly)
	s.awaitFlow("f", flowv1.Succeed)
}

func failsFromRunning(s *flows) {
	s.flow("f", steps(after("a"), after("b"), after("c"), after("d", "c")))
	s.phase("f-b", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	s.phase("f-a", batchv1.JobFailed)
	f := s.awaitFlow("f", flowv1.Failed)
	if c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionFailed); c == nil || c.Status != "True" || c.Message != "step a: its Job f-a is Failed" {
		s.Errorf("status %+v", c)
	}
	s.phase("f-c", batchv1.JobCompleted)
	s.seen("f", "f-c", batchv1.JobCompleted)
	s.only("f-a", "f-b", "f-c")
	if s.vcjob("f-b").DeletionTimestamp != nil {
		s.Error("the Job that ran is being deleted")
	}
}

func failsAtOnce(s *flows, end batchv1.JobPhase) {
	s.flow("f", steps(after("a"), after("b", "a")))
	s.awaitFlow("f", flowv1.Pending)
	s.phase("f-a", end)
	s.awaitFlow("f", flowv1.Failed)
}

func terminatesFromRunning(s *flows) {
	s.flow("f", steps(after("a"), after("b")))
	s.phase("f-b", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	s.phase("f-a", batchv1.JobTerminating)
	s.seen("f", "f-a", batchv1.JobTerminating)
	s.awaitFlow("f", flowv1.Running)
	s.phase("f-a", batchv1.JobTerminated)
	s.awaitFlow("f", flowv1.Failed)
}

func listsPhases(s *flows) {
	names := map[batchv1.JobPhase]string{
		batchv1.JobPending: "pending", batchv1.JobRunning: "running", batchv1.JobCompleted: "completed",
		batchv1.JobCompleting: "completing", batchv1.JobTerminating: "terminating", batchv1.JobRestarting: "restarting",
		batchv1.JobAborting: "aborting", batchv1.JobAborted: "aborted",
	}
	spec := steps(after("new"))
	for _, name := range names {
		spec.Flows = append(spec.Flows, after(name))
	}
	s.flow("f", spec)
	for _, step := range spec.Flows { // all of them first: one that is aborted holds up those that are not made
		s.vcjob("f-" + step.Name)
	}
	for phase, name := range names {
		s.phase("f-"+name, phase)
	}
	s.await("f", "has the lists", func(f *flowv1.JobFlow) error {
		st := f.Status
		for _, l := range []struct{ got, want []string }{
			{st.PendingJobs, []string{"f-pending"}}, {st.RunningJobs, []string{"f-running"}}, {st.CompletedJobs, []string{"f-completed"}},
			{st.UnKnowJobs, []string{"f-new", "f-restarting", "f-aborting", "f-aborted"}}, {st.FailedJobs, nil}, {st.TerminatedJobs, nil},
		} {
			if !sameSet(l.got, l.want) {
				return fmt.Errorf("list %v, want %v", l.got, l.want)
			}
		}
		if st.State.Phase != flowv1.Running {
			return fmt.Errorf("phase %s", st.State.Phase)
		}
		return nil
	})
}

func recordsStepHistory(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a")))
	for _, phase := range []batchv1.JobPhase{batchv1.JobPending, batchv1.JobRunning, batchv1.JobCompleted} {
		s.phase("f-a", phase)
		s.seen("f", "f-a", phase)
		s.phase("f-a", phase) // once more, and nothing is added
	}
	f := s.seen("f", "f-a", batchv1.JobCompleted)
	j, e := s.vcjob("f-a"), f.Status.JobStatusList[0]
	if e.Name != "f-a" || !e.StartTimestamp.Equal(&j.CreationTimestamp) || !e.EndTimestamp.Time.Equal(j.CreationTimestamp.Add(time.Second)) || e.RestartCount != 0 {
		s.Errorf("entry %+v of a Job created %s", e, j.CreationTimestamp)
	}
	var states []string
	for i, h := range e.RunningHistories {
		states = append(states, string(h.State))
		if last := i == len(e.RunningHistories)-1; h.StartTimestamp.IsZero() || last != h.EndTimestamp.IsZero() {
			s.Errorf("history %+v", e.RunningHistories)
		}
	}
	if got := strings.Join(states, " "); got != "Pending Running Completed" {
		s.Errorf("histories %s", got)
	}
	c := f.Status.Conditions["f-a"]
	if c.Phase != batchv1.JobCompleted || !c.CreateTimestamp.Equal(&j.CreationTimestamp) || c.RunningDuration.Duration != 1500*time.Millisecond || c.TaskStatusCount["main"].Phase["Succeeded"] != 1 {
		s.Errorf("condition %+v", c)
	}
	s.asText("f", `"createTime":`, `"runningDuration":"1.5s"`, `"conditions":{"f-a":{`)
	s.phase("f-b", batchv1.JobRestarting)
	s.asText("f", `"unKnowJobs":["f-b"]`)
}

// asText checks what the API server has of a flow.
func (s *flows) asText(name string, parts ...string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "the text of "+name, func() error {
		text := s.text(name)
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return fmt.Errorf("no %s in %s", part, text)
			}
		}
		return nil
	})
}

func survivesConflicts(s *flows) {
	stop := make(chan struct{})
	done := make(chan struct{})
	var spec flowv1.JobFlowSpec
	for i := range 5 {
		spec.Flows = append(spec.Flows, after(fmt.Sprintf("s%d", i)))
	}
	f := s.flow("f", spec)
	go func() { // another client writes all the time
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				p := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, i))
				_ = s.Patch(s.Context(), f.DeepCopy(), p)
			}
		}
	}()
	s.runs(func(j *batchv1.Job) batchv1.JobPhase { return batchv1.JobCompleted })
	s.awaitFlow("f", flowv1.Succeed)
	s.flow("g", steps(after("bad"), after("s0")))
	close(stop)
	<-done
	if got := s.counter("volcano_jobflow_succeed_phase_count"); got < 1 {
		s.Errorf("%v flows were counted", got)
	}
	s.awaitFlow("g", flowv1.Succeed)
	testkit.Eventually(s, waitTimeout, "both are counted, once", func() bool {
		return s.counter("volcano_jobflow_succeed_phase_count") == 2 && s.counter("volcano_jobflow_failed_phase_count") == 0
	})
	s.must(s.Delete(s.Context(), s.nsObject()))
	testkit.Eventually(s, waitTimeout, "the counts of the namespace go with it", func() bool {
		return s.counter("volcano_jobflow_succeed_phase_count") == -1
	})
}

// counter reads a metric of the space. -1: there is none.
func (s *flows) counter(name string) float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetName() == "jobflow_namespace" && m.GetLabel()[0].GetValue() == s.name {
				return m.GetCounter().GetValue()
			}
		}
	}
	if strings.Contains(name, "failed") {
		return 0
	}
	return -1
}

func retains(s *flows) {
	bad := func(j *batchv1.Job) batchv1.JobPhase {
		if strings.HasPrefix(j.Name, "bad-") {
			return batchv1.JobFailed
		}
		return batchv1.JobCompleted
	}
	s.runs(bad)
	spec := steps(after("a"), after("b", "a"))
	spec.JobRetainPolicy = flowv1.Retain
	s.flow("kept", spec)
	s.flow("unset", steps(after("a")))
	spec.JobRetainPolicy = flowv1.Delete
	s.flow("gone", spec)
	s.flow("bad", spec)
	for _, name := range []string{"kept", "unset", "gone"} {
		s.awaitFlow(name, flowv1.Succeed)
	}
	s.awaitFlow("bad", flowv1.Failed)
	want := []string{"bad-a", "kept-a", "kept-b", "unset-a"}
	testkit.EventuallyNoError(s, waitTimeout, "the Jobs of one flow are deleted", func() error {
		if got := s.vcjobs(); !slices.Equal(got, want) {
			return fmt.Errorf("jobs %v", got)
		}
		return nil
	})
	if f := s.read("gone"); !slices.Equal(f.Status.CompletedJobs, []string{"gone-a", "gone-b"}) || f.Status.State.Phase != flowv1.Succeed {
		s.Errorf("status %+v", f.Status)
	}
}

func retainsLater(s *flows) {
	s.runs(nil)
	s.flow("f", steps(after("a"), after("b", "a")))
	s.awaitFlow("f", flowv1.Succeed)
	s.only("f-a", "f-b")
	s.edit("f", func(f *flowv1.JobFlowSpec) { f.JobRetainPolicy = flowv1.Delete })
	testkit.Eventually(s, waitTimeout, "the Jobs are deleted", func() bool { return len(s.vcjobs()) == 0 })
	s.awaitFlow("f", flowv1.Succeed)
}

func deletesAll(s *flows) {
	f := s.flow("f", steps(after("a"), after("b", "a")))
	s.phase("f-a", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	j := s.vcjob("f-a")
	j.Finalizers = []string{"test.k8s4r.io/hold"}
	s.must(s.Update(s.Context(), j))
	s.must(s.Delete(s.Context(), f, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	s.awaitFlow("f", flowv1.Terminating)
	s.phase("f-a", batchv1.JobCompleted)
	s.seen("f", "f-a", batchv1.JobCompleted)
	s.only("f-a")
	s.must(s.Patch(s.Context(), s.vcjob("f-a"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	testkit.Eventually(s, waitTimeout, "all is gone", func() bool {
		return len(s.vcjobs()) == 0 && apierrors.IsNotFound(s.Get(s.Context(), s.key("f"), &flowv1.JobFlow{}))
	})
}

func sharesTemplates(s *flows) {
	s.flow("one", steps(after("a"), after("b", "a")))
	s.flow("two", steps(after("a"), after("b", "a")))
	s.phase("one-a", batchv1.JobCompleted)
	s.phase("two-a", batchv1.JobFailed)
	s.awaitFlow("two", flowv1.Failed)
	s.phase("one-b", batchv1.JobCompleted)
	f := s.awaitFlow("one", flowv1.Succeed)
	if !sameSet(f.Status.CompletedJobs, []string{"one-a", "one-b"}) || len(f.Status.FailedJobs) != 0 {
		s.Errorf("status %+v", f.Status)
	}
	s.dependsOn("a", "one-a", "two-a")
}

func changesATemplate(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a")))
	s.vcjob("f-a")
	for _, name := range []string{"a", "b"} {
		testkit.EventuallyNoError(s, waitTimeout, "change template "+name, func() error {
			var t flowv1.JobTemplate
			if err := s.Get(s.Context(), s.key(name), &t); err != nil {
				return err
			}
			t.Spec.Tasks[0].Replicas = 7
			return s.Update(s.Context(), &t)
		})
	}
	look := 0 // templates come by another watch than Jobs
	testkit.Eventually(s, waitTimeout, "the controller has seen the change", func() bool {
		look++
		s.flow(fmt.Sprintf("look-%d", look), steps(after("b")))
		return s.vcjob(fmt.Sprintf("look-%d-b", look)).Spec.Tasks[0].Replicas == 7
	})
	s.phase("f-a", batchv1.JobCompleted)
	if a, b := s.vcjob("f-a").Spec.Tasks[0].Replicas, s.vcjob("f-b").Spec.Tasks[0].Replicas; a != 1 || b != 7 {
		s.Errorf("replicas %d and %d", a, b)
	}
}

func waitsForATemplate(s *flows) {
	s.template("a", "b")
	s.bare("known", steps(after("a"), after("b"))) // they come by another watch than flows
	s.vcjob("known-a")
	s.vcjob("known-b")
	s.bare("f5", steps(after("a"), after("nosuch"), after("b", "a")))
	s.phase("f5-a", batchv1.JobCompleted)
	s.phase("f5-b", batchv1.JobCompleted)
	s.awaitSaid("f5", "SyncJobFlow", `SyncJobFlow JobFlow failed for sync jobflow f5 failed for jobtemplate.flow.volcano.sh "nosuch" not found, event is OutOfSync, action is SyncJobFlow`)
	s.seen("f5", "f5-b", batchv1.JobCompleted)
	f := s.read("f5")
	if c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid); c == nil || c.Status != "False" || c.Reason != "TemplateNotFound" {
		s.Errorf("condition %+v", c)
	}
	s.template("nosuch")
	s.phase("f5-nosuch", batchv1.JobCompleted)
	f = s.awaitFlow("f5", flowv1.Succeed)
	if !meta.IsStatusConditionTrue(f.Status.FlowConditions, flowv1.ConditionValid) {
		s.Errorf("conditions %+v", f.Status.FlowConditions)
	}
	if n := len(s.eventNotes("f5", "SyncJobFlow")); n != 1 {
		s.Errorf("%d events, the template was missing once", n)
	}
}

func keepsWhatFinished(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a"), after("c")))
	s.phase("f-a", batchv1.JobCompleted)
	s.vcjob("f-b")
	s.must(s.Delete(s.Context(), s.vcjob("f-a")))
	s.phase("f-b", batchv1.JobCompleted)
	s.seen("f", "f-b", batchv1.JobCompleted)
	s.phase("f-c", batchv1.JobCompleted)
	f := s.awaitFlow("f", flowv1.Succeed)
	if !sameSet(f.Status.CompletedJobs, []string{"f-a", "f-b", "f-c"}) || len(f.Status.JobStatusList) != 3 {
		s.Errorf("status %+v", f.Status)
	}
	s.must(s.Delete(s.Context(), s.vcjob("f-b")))
	s.edit("f", func(f *flowv1.JobFlowSpec) { f.Params = map[string]string{"x": "y"} })
	s.await("f", "has seen the change", func(f *flowv1.JobFlow) error {
		if f.Status.ObservedGeneration != f.Generation {
			return fmt.Errorf("generation %d", f.Status.ObservedGeneration)
		}
		return nil
	})
	s.only("f-c")
}

func recordsTheEnd(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a")))
	for _, name := range []string{"f-a", "f-b"} {
		s.phase(name, batchv1.JobCompleted)
		s.must(s.Delete(s.Context(), s.vcjob(name)))
	}
	f := s.awaitFlow("f", flowv1.Succeed)
	if !sameSet(f.Status.CompletedJobs, []string{"f-a", "f-b"}) {
		s.Errorf("status %+v", f.Status)
	}
	s.only()
}

func losesAJob(s *flows) {
	spec := steps(after("a"), after("b", "a"))
	s.flow("f", spec)
	s.phase("f-a", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	s.must(s.Delete(s.Context(), s.vcjob("f-a")))
	f := s.awaitFlow("f", flowv1.Failed)
	if len(f.Status.RunningJobs) != 0 || f.Status.Steps[0].Reason != "JobDeleted" {
		s.Errorf("status %+v", f.Status)
	}
	s.only()
	spec.Flows[0].Retry = &flowv1.StepRetry{Limit: 1, Backoff: batchv1.NewDuration(100 * time.Millisecond)}
	s.flow("g", spec)
	lost := s.vcjob("g-a")
	s.phase("g-a", batchv1.JobRunning)
	s.awaitFlow("g", flowv1.Running)
	s.must(s.Delete(s.Context(), lost))
	testkit.Eventually(s, waitTimeout, "it runs again", func() bool { return s.vcjob("g-a").UID != lost.UID })
	s.runs(nil)
	s.awaitFlow("g", flowv1.Succeed)
}

func reportsNameTaken(s *flows) {
	other := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "f-a"}, Spec: podTemplate(s.name, "a").Spec}
	s.must(s.Create(s.Context(), other))
	s.phase("f-a", batchv1.JobCompleted)
	s.flow("f", steps(after("a"), after("b"), after("c", "a")))
	s.phase("f-b", batchv1.JobCompleted)
	f := s.await("f", "says whose the Job is", func(f *flowv1.JobFlow) error {
		c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid)
		if c == nil || c.Reason != "NameTaken" || c.Message != "step a: a Job f-a exists that this flow does not own; delete or rename it, or rename the flow or the step" {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	s.awaitSaid("f", "NameTaken", "step a: a Job f-a exists that this flow does not own; delete or rename it, or rename the flow or the step")
	if slices.Contains(f.Status.CompletedJobs, "f-a") {
		s.Errorf("status %+v", f.Status)
	}
	s.only("f-a", "f-b")
	s.must(s.Delete(s.Context(), other))
	testkit.Eventually(s, waitTimeout, "its own Job is created", func() bool { return s.vcjob("f-a").UID != other.UID })
}

func doesNotAdoptOldJobs(s *flows) {
	f := s.flow("f", steps(after("a")))
	s.phase("f-a", batchv1.JobCompleted)
	s.awaitFlow("f", flowv1.Succeed)
	first := s.vcjob("f-a")
	s.must(s.Delete(s.Context(), f, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	testkit.Eventually(s, waitTimeout, "the flow is gone", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key("f"), &flowv1.JobFlow{}))
	})
	s.flow("f", steps(after("a")))
	s.await("f", "waits for the name", func(f *flowv1.JobFlow) error {
		if len(f.Status.Steps) != 1 || f.Status.Steps[0].Reason != "NameTaken" {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	s.must(s.Delete(s.Context(), first))
	s.phase("f-a", batchv1.JobCompleted)
	s.awaitFlow("f", flowv1.Succeed)
}

func endsOddFlows(s *flows) {
	s.runs(func(j *batchv1.Job) batchv1.JobPhase {
		if j.Name == "removed-b" {
			return "" // no step depends on it
		}
		return batchv1.JobCompleted
	})
	s.flow("none", steps())
	s.flow("twice", steps(after("a"), after("b", "a"), after("a")))
	s.flow("removed", steps(after("a"), after("b"), after("c", "b")))
	s.seen("removed", "removed-a", batchv1.JobCompleted)
	s.vcjob("removed-b")
	s.edit("removed", func(f *flowv1.JobFlowSpec) { f.Flows = []flowv1.Flow{after("a")} })
	for _, name := range []string{"none", "twice", "removed"} {
		s.awaitFlow(name, flowv1.Succeed)
	}
}

func recoversFromCycle(s *flows) {
	for name, c := range map[string]struct {
		spec flowv1.JobFlowSpec
		want string
	}{
		"self":      {steps(after("a", "a")), "jobflow Flow is not DAG"},
		"two":       {steps(after("a", "b"), after("b", "a")), "jobflow Flow is not DAG"},
		"three":     {steps(after("a", "b"), after("b", "c"), after("c", "a")), "jobflow Flow is not DAG"},
		"undefined": {steps(after("a", "x")), "jobflow Flow is not DAG: vertex is not defined: x"},
	} {
		s.flow(name, c.spec)
		s.await(name, "says what is wrong", func(f *flowv1.JobFlow) error {
			v := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid)
			if v == nil || v.Status != "False" || v.Message != c.want || f.Status.State.Phase != flowv1.Pending {
				return fmt.Errorf("condition %+v", v)
			}
			return nil
		})
		s.awaitSaid(name, "InvalidFlow", c.want)
	}
	s.only()
	s.runs(nil)
	s.edit("two", func(f *flowv1.JobFlowSpec) { f.Flows[0].DependsOn = nil })
	s.awaitFlow("two", flowv1.Succeed)
}

func reportsAfterFailure(s *flows) {
	s.flow("f", steps(after("a"), after("b")))
	s.phase("f-b", batchv1.JobRunning)
	s.phase("f-a", batchv1.JobFailed)
	s.awaitFlow("f", flowv1.Failed)
	s.phase("f-b", batchv1.JobCompleted)
	f := s.seen("f", "f-b", batchv1.JobCompleted)
	if len(f.Status.RunningJobs) != 0 || f.Status.State.Phase != flowv1.Failed {
		s.Errorf("status %+v", f.Status)
	}
}

func takesLongNames(s *flows) {
	s.runs(nil)
	long := strings.Repeat("n", 63)
	s.flow(long, steps(after("my.dotted.template"), after(strings.Repeat("t", 63), "my.dotted.template")))
	s.awaitFlow(long, flowv1.Succeed)
	j := s.vcjob(long + "-" + strings.Repeat("t", 63))
	if full := s.name + "." + long; j.Annotations[flowv1.KeyCreatedByJobFlow] != full || len(j.Labels[flowv1.KeyCreatedByJobFlow]) > 63 {
		s.Errorf("labels %v, annotations %v", j.Labels, j.Annotations)
	}
	s.dependsOn("my.dotted.template", long+"-my.dotted.template")
}

func reportsInvalidInput(s *flows) {
	s.runs(nil)
	s.template("a")
	odd := after("a_b")
	odd.TemplateRef = &flowv1.TemplateReference{Name: "a"}
	unfit := after("a")
	unfit.When = "params.x +"
	patched := after("a")
	patched.Patch = &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: []byte(`{"tasks":[{"name":"mian","replicas":2}]}`)}}
	asks := after("a")
	asks.DependsOn = &flowv1.DependsOn{Probe: &flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{Port: 80}}}}
	wordy := after("a")
	wordy.When = strings.Repeat("w", 2000)
	for name, c := range map[string]struct {
		spec flowv1.JobFlowSpec
		part string
	}{
		"when":  {steps(unfit), "spec.flows[a].when: does not compile"},
		"wordy": {steps(wordy), "undeclared reference to 'www"},
		"patch": {steps(patched), "spec.flows[a].patch.jobSpec.tasks[mian]: JobTemplate a has no such task and the patch gives it no template; name one of [main]"},
		"probe": {steps(asks), "spec.flows[a].dependsOn.probe: has no Pods to check"},
		"named": {steps(odd), "Invalid value: \"named-a_b\""},
	} {
		s.bare(name, c.spec)
		s.await(name, "says what is wrong", func(f *flowv1.JobFlow) error {
			v := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid)
			if v == nil || v.Status != "False" || !strings.Contains(v.Message, c.part) {
				return fmt.Errorf("condition %+v", v)
			}
			return nil
		})
	}
	testkit.Eventually(s, waitTimeout, "a long message is shortened to the size limit of events", func() bool {
		for note := range s.eventNotes("wordy", "InvalidFlow") {
			return strings.HasPrefix(note, "spec.flows[a].when: does not compile") && strings.HasSuffix(note, "…")
		}
		return false
	})
	s.flow("good", steps(after("a")))
	s.awaitFlow("good", flowv1.Succeed)
}

// holdsAThousand has all steps lack their template, with the longest names possible. The API server
// needs a minute for a thousand of them, so that -short takes fewer.
func holdsAThousand(s *flows) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	var spec flowv1.JobFlowSpec
	for i := range n {
		f := after(fmt.Sprintf("%063d", i))
		f.TemplateRef = &flowv1.TemplateReference{Name: "late"}
		spec.Flows = append(spec.Flows, f)
	}
	name := strings.Repeat("n", 63)
	s.bare(name, spec)
	f := s.await(name, "says what it lacks", func(f *flowv1.JobFlow) error {
		v := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid)
		if v == nil || !strings.HasPrefix(v.Message, "step "+spec.Flows[0].Name+`: jobtemplate.flow.volcano.sh "late" not found`) || !strings.HasSuffix(v.Message, fmt.Sprintf("; and %d more", n-5)) {
			return fmt.Errorf("condition %+v", v)
		}
		return nil
	})
	if len(f.Status.Steps) != n {
		s.Errorf("%d steps have a message", len(f.Status.Steps))
	}
	s.runs(nil)
	s.flow("good", steps(after("a"), after("b", "a")))
	s.awaitFlow("good", flowv1.Succeed)
	s.template("late")
	for completed := 0; completed < n; { // however long it takes, it must advance
		testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("more than %d of %d steps complete", completed, n), func() error {
			f := s.read(name)
			if len(f.Status.CompletedJobs) <= completed {
				return fmt.Errorf("%s, %d have completed", f.Status.State.Phase, len(f.Status.CompletedJobs))
			}
			completed = len(f.Status.CompletedJobs)
			return nil
		})
	}
	s.awaitFlow(name, flowv1.Succeed)
	if size := len(s.text(name)); size > 1400*n {
		s.Errorf("the flow has %d bytes; with a thousand steps it would exceed the limit of etcd", size)
	}
}

func continuesAfterRestart(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a"), after("c", "b"), after("d", "c")))
	s.phase("f-a", batchv1.JobCompleted)
	b := s.vcjob("f-b")
	s.seen("f", "f-a", batchv1.JobCompleted)
	created := func(name string) string { return fmt.Sprintf("create a job named %s!", name) }
	for _, name := range []string{"f-a", "f-b"} { // an event on its way ends with its manager
		s.awaitSaid("f", "Created", created(name))
	}
	s.stop()
	s.must(s.Delete(s.Context(), s.vcjob("f-a")))
	s.phase("f-b", batchv1.JobRunning, batchv1.JobCompleted)
	s.manage(flowsOnly)
	s.vcjob("f-c")
	s.stop()
	s.manage(flowsOnly)
	s.phase("f-c", batchv1.JobCompleted)
	s.phase("f-d", batchv1.JobCompleted)
	s.awaitFlow("f", flowv1.Succeed)
	s.only("f-b", "f-c", "f-d")
	if s.vcjob("f-b").UID != b.UID {
		s.Error("a Job was created twice")
	}
	for _, name := range []string{"f-a", "f-b", "f-d"} {
		s.awaitSaid("f", "Created", created(name))
	}
	// Who made f-c was stopped in the middle of it: its event may be lost, and never doubled.
	if n := s.eventNotes("f", "Created")[created("f-c")]; n > 1 {
		s.Errorf("f-c was created %d times", n)
	}
}
