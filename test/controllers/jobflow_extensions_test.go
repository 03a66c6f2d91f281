package controllers

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/manager"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestJobFlow_BeyondVolcano tests what flows can do beyond Volcano's.
func TestJobFlow_BeyondVolcano(t *testing.T) {
	t.Parallel()
	s := share(t, flowServer, flowsOnly)
	runCases(t, "ours", s.flows, []testCase[*flows]{
		{"a patch changes only its step", patches},
		{"a step waits until a Pod responds to its probe", probes},
		{"a probe of ended targets fails, also with an unknown task", failsProbes},
		{"a step runs on robots", runsOnRobots},
		{"a clean-up runs after a failure", cleansUp},
		{"a step is retried automatically", retriesByItself},
		{"a failed flow is retried on request", retriesOnRequest},
		{"FailFast stops the siblings", failsFast},
		{"Continue runs steps that do not depend on the failed one", continues},
		{"a suspended flow starts nothing", suspends},
		{"an aborted Job suspends its flow", suspendsByAbort},
		{"a canceled flow stops its Jobs and ends as Failed", cancelsAFlow},
		{"outputs of Pods are passed to the next step", passesOutputs},
		{"a step whose when is false is skipped", skips},
		{"a flow is deleted after its time to live", expiresAFlow},
	})
}

func patches(s *flows) {
	s.template("a")
	plain, patched := after("plain"), after("patched")
	plain.TemplateRef, patched.TemplateRef = &flowv1.TemplateReference{Name: "a"}, &flowv1.TemplateReference{Name: "a"}
	patched.Patch = &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: []byte(`{"tasks":[{"name":"main","replicas":3}]}`)}}
	s.bare("f", steps(plain, patched))
	if p, q := s.vcjob("f-plain").Spec, s.vcjob("f-patched").Spec; p.Tasks[0].Replicas != 1 || q.Tasks[0].Replicas != 3 || q.Tasks[0].Template.Spec.Containers[0].Image != "busybox" {
		s.Errorf("replicas %d and %d", p.Tasks[0].Replicas, q.Tasks[0].Replicas)
	}
}

func probes(s *flows) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	port := l.Addr().(*net.TCPAddr).Port
	s.must(l.Close())
	b := after("b", "a")
	period := int32(1)
	b.DependsOn.Probe = &flowv1.Probe{PeriodSeconds: &period, TCPSocketList: []flowv1.TCPSocket{{TaskName: "main", Port: port}}}
	s.flow("f", steps(after("a"), b))
	s.phase("f-a", batchv1.JobRunning)
	s.pod(s.vcjob("f-a"), 0, func(st *corev1.PodStatus) {
		st.Phase, st.PodIP, st.PodIPs = corev1.PodRunning, "127.0.0.1", []corev1.PodIP{{IP: "127.0.0.1"}}
	})
	s.await("f", "reports that no Pod answers", func(f *flowv1.JobFlow) error {
		c := meta.FindStatusCondition(f.Status.FlowConditions, "ProbesReady")
		if c == nil || c.Status != "False" || !strings.Contains(c.Message, "refused") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	s.only("f-a")
	l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	s.must(err)
	defer l.Close()
	s.vcjob("f-b")
	s.await("f", "a ready probe", func(f *flowv1.JobFlow) error {
		if !meta.IsStatusConditionTrue(f.Status.FlowConditions, "ProbesReady") {
			return fmt.Errorf("conditions %+v", f.Status.FlowConditions)
		}
		return nil
	})
}

func failsProbes(s *flows) {
	probing := func(task string) flowv1.Flow {
		f := after("b", "a")
		f.DependsOn.Probe = &flowv1.Probe{TCPSocketList: []flowv1.TCPSocket{{TaskName: task, Port: 80}}}
		return f
	}
	s.flow("late", steps(after("a"), probing("main")))
	s.phase("late-a", batchv1.JobCompleted)
	s.must(s.Delete(s.Context(), s.vcjob("late-a"))) // as its ttl does
	f := s.awaitFlow("late", flowv1.Failed)
	if c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionFailed); c == nil ||
		c.Message != "step b: the targets have ended and are not ready: tcpSocketList[0]: there is no Pod of task main" {
		s.Errorf("condition %+v", c)
	}
	s.flow("odd", steps(after("a"), probing("mian")))
	s.phase("odd-a", batchv1.JobRunning)
	s.await("odd", "a message about the unknown task", func(f *flowv1.JobFlow) error {
		c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionValid)
		if c == nil || c.Reason != "ProbeInvalid" || !strings.Contains(c.Message, "tcpSocketList[0].taskName: the Jobs of its targets have no task mian; use one of [main]") {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
}

// pod makes a Pod of a Job, as its controller does, with a status.
func (s *flows) pod(j *batchv1.Job, index int, status func(*corev1.PodStatus)) {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.name, Name: fmt.Sprintf("%s-main-%d", j.Name, index),
		Labels:          map[string]string{batchv1.KeyJobName: j.Name, batchv1.KeyTaskSpec: "main", batchv1.KeyTaskIndex: fmt.Sprint(index)},
		Annotations:     map[string]string{batchv1.KeyTaskSpec: "main"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.GroupVersion.WithKind("Job"))},
	}, Spec: j.Spec.Tasks[0].Template.Spec}
	s.must(s.Create(s.Context(), p))
	status(&p.Status)
	s.must(s.Status().Update(s.Context(), p))
}

// tour is a template of a Job on robots.
func (s *flows) tour(name string) {
	s.Helper()
	s.must(s.Create(s.Context(), &robotv1.JobTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		Spec:       robotv1.JobSpec{TaskGroups: []robotv1.TaskGroupDefinition{group("g", 2, "t")}},
	}))
}

func onRobots(name string, targets ...string) flowv1.Flow {
	f := after(name, targets...)
	f.TemplateRef = &flowv1.TemplateReference{APIGroup: "robot.k8s4r.io", Kind: "JobTemplate", Name: "tour"}
	return f
}

// robotState writes the state of a Job on robots, as its controller does.
func (s *flows) robotState(name, state string, counts robotv1.TaskCounts) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, fmt.Sprintf("robot job %s becomes %s", name, state), func() error {
		var j robotv1.Job
		if err := s.Get(s.Context(), s.key(name), &j); err != nil {
			return err
		}
		j.Status.State, j.Status.Status, j.Status.TaskCounts = state, state, counts
		if state == "completed" || state == "failed" {
			now := metav1.NowMicro()
			j.Status.CompletedAt = &now
		}
		return s.Status().Update(s.Context(), &j)
	})
}

func runsOnRobots(s *flows) {
	s.tour("tour")
	f := s.flow("f", steps(onRobots("drive"), after("look", "drive")))
	s.robotState("f-drive", "running", robotv1.TaskCounts{TotalTasks: 2, RunningTasks: 2})
	now := s.seen("f", "f-drive", batchv1.JobRunning)
	if now.Status.Conditions["f-drive"].TaskStatusCount["tasks"].Phase[corev1.PodRunning] != 2 {
		s.Errorf("conditions %+v", now.Status.Conditions)
	}
	var j robotv1.Job
	s.must(s.Get(s.Context(), s.key("f-drive"), &j))
	if !metav1.IsControlledBy(&j, f) || j.Labels[flowv1.KeyCreatedByJobFlow] != s.name+".f" || j.Annotations[flowv1.KeyCreatedByJobTemplate] != s.name+".tour" {
		s.Errorf("%+v", j.ObjectMeta)
	}
	s.robotState("f-drive", "completed", robotv1.TaskCounts{TotalTasks: 2, SucceededTasks: 2})
	s.phase("f-look", batchv1.JobCompleted)
	done := s.awaitFlow("f", flowv1.Succeed)
	if !sameSet(done.Status.CompletedJobs, []string{"f-drive", "f-look"}) {
		s.Errorf("status %+v", done.Status)
	}
	s.bare("g", steps(onRobots("x")))
	s.robotState("g-x", "canceled", robotv1.TaskCounts{TotalTasks: 2, CanceledTasks: 2})
	s.awaitFlow("g", flowv1.Failed)
}

func cleansUp(s *flows) {
	mend := after("mend", "a")
	mend.DependsOn.Condition = flowv1.WhenFailed
	s.flow("f", steps(after("a"), after("b", "a"), mend))
	s.phase("f-a", batchv1.JobFailed)
	s.phase("f-mend", batchv1.JobRunning)
	s.seen("f", "f-mend", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	s.phase("f-mend", batchv1.JobCompleted)
	s.awaitFlow("f", flowv1.Failed)
	s.only("f-a", "f-mend")
}

func retriesByItself(s *flows) {
	a := after("a")
	a.Retry = &flowv1.StepRetry{Limit: 3, Backoff: batchv1.NewDuration(50 * time.Millisecond)}
	first := true
	ran := s.runs(func(j *batchv1.Job) batchv1.JobPhase {
		if j.Name == "f-a" && first {
			first = false
			return batchv1.JobFailed
		}
		return batchv1.JobCompleted
	})
	s.flow("f", steps(a, after("b", "a")))
	f := s.awaitFlow("f", flowv1.Succeed)
	if got := fmt.Sprint(ran.list()); got != "[f-a f-a f-b]" || f.Status.Steps[0].Retries != 1 {
		s.Errorf("ran %s, steps %+v", got, f.Status.Steps)
	}
	if got := s.counter("volcano_jobflow_failed_phase_count"); got != 0 {
		s.Errorf("%v failures were counted", got)
	}
}

func retriesOnRequest(s *flows) {
	end := make(chan batchv1.JobPhase, 10)
	end <- batchv1.JobFailed
	ran := s.runs(func(j *batchv1.Job) batchv1.JobPhase {
		if j.Name != "f-b" {
			return batchv1.JobCompleted
		}
		return <-end
	})
	s.flow("f", steps(after("a"), after("b", "a"), after("c", "b")))
	s.awaitFlow("f", flowv1.Failed)
	end <- batchv1.JobCompleted
	s.edit("f", func(f *flowv1.JobFlowSpec) { f.Retry = &flowv1.RetryRequest{Generation: 1} })
	f := s.awaitFlow("f", flowv1.Succeed)
	if got := fmt.Sprint(ran.list()); got != "[f-a f-b f-b f-c]" || f.Status.Retry != 1 {
		s.Errorf("ran %s, status %+v", got, f.Status)
	}
}

// commanded waits for the Command that stops a Job, and terminates it.
func (s *flows) commanded(job string) {
	s.Helper()
	testkit.EventuallyNoError(s, waitTimeout, "job "+job+" is to be terminated", func() error {
		var list busv1.CommandList
		if err := s.List(s.Context(), &list, client.InNamespace(s.name)); err != nil {
			return err
		}
		for i := range list.Items {
			c := &list.Items[i]
			if t := c.TargetObject; t != nil && t.Name == job && t.UID == s.vcjob(job).UID && t.Kind == "Job" && c.Action == "TerminateJob" {
				return s.Delete(s.Context(), c)
			}
		}
		return fmt.Errorf("no Command among %d", len(list.Items))
	})
	s.phase(job, batchv1.JobTerminated)
}

func failsFast(s *flows) {
	s.tour("tour")
	spec := steps(after("a"), after("b"), onRobots("r"), after("c", "b"))
	spec.FailurePolicy = flowv1.FailFast
	s.flow("f", spec)
	s.robotState("f-r", "running", robotv1.TaskCounts{TotalTasks: 2, RunningTasks: 2})
	s.phase("f-b", batchv1.JobRunning)
	s.seen("f", "f-b", batchv1.JobRunning)
	s.phase("f-a", batchv1.JobFailed)
	s.awaitFlow("f", flowv1.Failed)
	s.commanded("f-b")
	testkit.Eventually(s, waitTimeout, "the robots are called off", func() bool {
		var j robotv1.Job
		return s.Get(s.Context(), s.key("f-r"), &j) == nil && j.Spec.DesiredState == robotv1.DesiredCanceled
	})
	f := s.seen("f", "f-b", batchv1.JobTerminated)
	if !sameSet(f.Status.TerminatedJobs, []string{"f-b"}) {
		s.Errorf("status %+v", f.Status)
	}
	s.only("f-a", "f-b")
}

func continues(s *flows) {
	spec := steps(after("a"), after("b"), after("c", "b"), after("d", "a"))
	spec.FailurePolicy = flowv1.Continue
	s.runs(func(j *batchv1.Job) batchv1.JobPhase {
		if j.Name == "f-a" {
			return batchv1.JobFailed
		}
		return batchv1.JobCompleted
	})
	s.flow("f", spec)
	s.awaitFlow("f", flowv1.Failed)
	s.only("f-a", "f-b", "f-c")
}

func suspends(s *flows) {
	spec := steps(after("a"), after("b", "a"))
	s.flow("f", spec)
	s.vcjob("f-a")
	s.edit("f", func(f *flowv1.JobFlowSpec) { f.Suspend = true })
	s.await("f", "is suspended", func(f *flowv1.JobFlow) error { // the end of its Job comes by another watch
		if !meta.IsStatusConditionTrue(f.Status.FlowConditions, flowv1.ConditionSuspended) {
			return fmt.Errorf("conditions %+v", f.Status.FlowConditions)
		}
		return nil
	})
	s.phase("f-a", batchv1.JobCompleted)
	f := s.seen("f", "f-a", batchv1.JobCompleted)
	if !meta.IsStatusConditionTrue(f.Status.FlowConditions, flowv1.ConditionSuspended) {
		s.Errorf("conditions %+v", f.Status.FlowConditions)
	}
	s.only("f-a")
	s.edit("f", func(f *flowv1.JobFlowSpec) { f.Suspend = false })
	s.phase("f-b", batchv1.JobCompleted)
	s.awaitFlow("f", flowv1.Succeed)
}

func suspendsByAbort(s *flows) {
	s.flow("f", steps(after("a"), after("b"), after("c", "b")))
	s.phase("f-a", batchv1.JobAborted)
	s.seen("f", "f-a", batchv1.JobAborted)
	s.phase("f-b", batchv1.JobCompleted)
	f := s.seen("f", "f-b", batchv1.JobCompleted)
	if !meta.IsStatusConditionTrue(f.Status.FlowConditions, flowv1.ConditionSuspended) {
		s.Errorf("conditions %+v", f.Status.FlowConditions)
	}
	s.only("f-a", "f-b")
	s.phase("f-a", batchv1.JobRestarting, batchv1.JobCompleted)
	s.phase("f-c", batchv1.JobCompleted)
	s.awaitFlow("f", flowv1.Succeed)
}

func cancelsAFlow(s *flows) {
	s.flow("f", steps(after("a"), after("b", "a")))
	s.phase("f-a", batchv1.JobRunning)
	s.awaitFlow("f", flowv1.Running)
	s.edit("f", func(f *flowv1.JobFlowSpec) { f.Cancel = true })
	s.awaitFlow("f", flowv1.Terminating)
	s.commanded("f-a")
	f := s.awaitFlow("f", flowv1.Failed)
	if c := meta.FindStatusCondition(f.Status.FlowConditions, flowv1.ConditionFailed); c == nil || c.Reason != "Canceled" {
		s.Errorf("condition %+v", c)
	}
	s.only("f-a")
}

func passesOutputs(s *flows) {
	b := after("b", "a")
	b.Params = map[string]string{"best": "$(flows.a.outputs.accuracy)"}
	t := podTemplate(s.name, "b")
	t.Spec.Tasks[0].Template.Spec.Containers[0].Args = []string{"--best=$(params.best)", "--model=$(flows.a.outputs.model)"}
	s.must(s.Create(s.Context(), t))
	s.template("a")
	s.bare("f", steps(after("a"), b))
	j := s.vcjob("f-a")
	for i, message := range []string{"accuracy=0.5\nmodel=m0", "accuracy=0.97"} {
		s.pod(j, i, func(st *corev1.PodStatus) {
			st.Phase = corev1.PodSucceeded
			st.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}}
		})
	}
	s.phase("f-a", batchv1.JobCompleted)
	if args := s.vcjob("f-b").Spec.Tasks[0].Template.Spec.Containers[0].Args; fmt.Sprint(args) != "[--best=0.97 --model=m0]" {
		s.Errorf("args %v", args)
	}
	s.await("f", "keeps the outputs", func(f *flowv1.JobFlow) error {
		if len(f.Status.Steps) == 0 || f.Status.Steps[0].Outputs["accuracy"] != "0.97" {
			return fmt.Errorf("steps %+v", f.Status.Steps)
		}
		return nil
	})
}

func skips(s *flows) {
	b := after("b", "a")
	b.When = "params.mode == 'full'"
	spec := steps(after("a"), b, after("c", "b"))
	spec.Params = map[string]string{"mode": "quick"}
	s.runs(nil)
	s.flow("f", spec)
	f := s.awaitFlow("f", flowv1.Succeed)
	s.only("f-a", "f-c")
	for _, st := range f.Status.Steps {
		if st.Skipped != (st.Name == "b") {
			s.Errorf("step %+v", st)
		}
	}
}

func expiresAFlow(s *flows) {
	s.runs(nil)
	spec := steps(after("a"))
	ttl := int32(1)
	spec.TTLSecondsAfterFinished = &ttl
	s.flow("f", spec)
	testkit.Eventually(s, waitTimeout, "the flow and its Jobs are gone", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key("f"), &flowv1.JobFlow{})) && len(s.vcjobs()) == 0
	})
}

// TestJobFlow_ExpiredRobotJobWaitsForItsFlow has the controllers of both.
func TestJobFlow_ExpiredRobotJobWaitsForItsFlow(t *testing.T) {
	t.Parallel()
	sys := startApart(t, apartServer, manager.Config{Controllers: []string{"job", "taskgroup", "task", "robot"}, OfflineAfter: time.Hour}, "robot-ttl")
	s := sys.flows(t, "robot-ttl")
	s.robots("ttl-a")
	s.server(succeed)
	ttl := int32(0)
	s.must(s.Create(s.Context(), &robotv1.JobTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "tour"},
		Spec:       robotv1.JobSpec{TTLSecondsAfterFinished: &ttl, TaskGroups: []robotv1.TaskGroupDefinition{group("g", 2, "t")}},
	}))
	f := s.bare("f", steps(onRobots("drive")))
	j := &robotv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.name, Name: "f-drive",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, flowv1.GroupVersion.WithKind("JobFlow"))},
	}, Spec: robotv1.JobSpec{TTLSecondsAfterFinished: &ttl, TaskGroups: []robotv1.TaskGroupDefinition{group("g", 2, "t")}}}
	s.must(s.Create(s.Context(), j))
	s.awaitJob("f-drive", "completed") // and stays, for no controller of flows has seen it
	s.stop()
	s.manage(manager.Config{OfflineAfter: time.Hour})
	s.awaitFlow("f", flowv1.Succeed)
	testkit.Eventually(s, waitTimeout, "the Job goes", func() bool {
		return apierrors.IsNotFound(s.Get(s.Context(), s.key("f-drive"), &robotv1.Job{}))
	})
}
