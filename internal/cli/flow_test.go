package cli

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/logs/query"
	"k8s4r.io/k8s4r/internal/protocol/logs/record"
	"k8s4r.io/k8s4r/internal/testkit/golden"
)

// flowOf returns a flow with steps such as "a; b: a; c: a b".
func flowOf(name, steps string) *flowv1.JobFlow {
	f := &flowv1.JobFlow{ObjectMeta: metaOf(name)}
	for _, text := range strings.Split(steps, ";") {
		step, targets, depends := strings.Cut(strings.TrimSpace(text), ":")
		s := flowv1.Flow{Name: step}
		if depends {
			s.DependsOn = &flowv1.DependsOn{Targets: strings.Fields(targets)}
		}
		f.Spec.Flows = append(f.Spec.Flows, s)
	}
	return f
}

// ran sets the status of the step's Job.
func ran(f *flowv1.JobFlow, step string, state batchv1.JobPhase, took time.Duration, pods ...corev1.PodPhase) {
	start := noon.Add(-took)
	j := flowv1.JobStatus{Name: f.Name + "-" + step, State: state, StartTimestamp: metav1.NewTime(start)}
	if state == batchv1.JobCompleted || state == batchv1.JobFailed {
		j.EndTimestamp = metav1.NewTime(noon)
	}
	f.Status.JobStatusList = append(f.Status.JobStatusList, j)
	counts := map[corev1.PodPhase]int32{}
	for _, p := range pods {
		counts[p]++
	}
	if f.Status.Conditions == nil {
		f.Status.Conditions = map[string]flowv1.Condition{}
	}
	f.Status.Conditions[j.Name] = flowv1.Condition{TaskStatusCount: map[string]batchv1.TaskState{"main": {Phase: counts}}}
}

// nightly returns a flow with some completed steps.
func nightly() *flowv1.JobFlow {
	f := flowOf("nightly", "inspect; preprocess: inspect; train-a: preprocess; train-b: preprocess; evaluate: train-a train-b; deploy: evaluate; alarm: preprocess; extra: inspect")
	f.Spec.Flows[6].DependsOn.Condition = flowv1.WhenFailed
	f.Status.State.Phase = flowv1.Running
	f.Status.StartTime = &metav1.Time{Time: noon.Add(-5 * time.Minute)}
	ran(f, "inspect", batchv1.JobCompleted, 80*time.Second, corev1.PodSucceeded, corev1.PodSucceeded, corev1.PodSucceeded)
	ran(f, "preprocess", batchv1.JobCompleted, 10*time.Second, corev1.PodSucceeded)
	ran(f, "train-a", batchv1.JobRunning, 2*time.Minute, corev1.PodRunning, corev1.PodSucceeded)
	ran(f, "train-b", batchv1.JobFailed, time.Minute, corev1.PodFailed)
	f.Status.Steps = []flowv1.StepStatus{
		{Name: "train-b", Reason: "Retrying", Message: "runs again in 10s", NextRetryTime: &metav1.Time{Time: noon.Add(10 * time.Second)}},
		{Name: "extra", Skipped: true, Reason: "WhenFalse"},
	}
	return f
}

func TestFlowGraph_MatchesGolden(t *testing.T) {
	for _, kind := range []string{pictureASCII, pictureMermaid, pictureDOT, pictureSVG} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, nightly())
			golden.Equal(t, "flow-graph-"+kind, b.transcript(b.run("flow", "graph", "night", "-o", kind)))
		})
	}
}

// The state of a step follows from the status of its Job.
func TestViewFlow_DerivesStepStates(t *testing.T) {
	for _, row := range []struct {
		name   string
		status flowv1.StepStatus
		want   string
	}{
		{"its Job runs", flowv1.StepStatus{JobUID: "u"}, "Running"},
		{"it will run again: the Job belongs to an earlier run", flowv1.StepStatus{}, "Waiting"},
		{"it waits for its turn to run again", flowv1.StepStatus{JobUID: "u", NextRetryTime: &metav1.Time{Time: noon}}, "Retrying"},
		{"it was skipped", flowv1.StepStatus{Skipped: true, Reason: "WhenFalse"}, "Skipped"},
		{"its probe has failed", flowv1.StepStatus{Reason: "ProbeFailed", Message: "no answer"}, "Failed"},
		{"its Job was deleted", flowv1.StepStatus{JobUID: "u", Reason: "JobDeleted"}, "Failed"},
		{"its template is missing", flowv1.StepStatus{Reason: "TemplateNotFound"}, "Waiting"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := flowOf("f", "a")
			f.Status.State.Phase = flowv1.Running
			ran(f, "a", batchv1.JobRunning, time.Minute)
			row.status.Name = "a"
			f.Status.Steps = []flowv1.StepStatus{row.status}
			if got := viewFlow(f, noon).Steps[0].State; got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestDrawRails_MatchesGolden(t *testing.T) {
	for _, row := range []struct{ name, steps string }{
		{"one", "a"},
		{"chain", "a; b: a; c: b"},
		{"diamond", "a; b: a; c: a; d: b c"},
		{"several-roots", "a; b; c; d: a b c"},
		{"crossing", "a; b; c: a b; d: a b; e: c; f: d"},
		{"wide", "a; b: a; c: a; d: a; e: b c d"},
		{"unconnected", "a; b; c"},
		{"backwards", "c: b; b: a; a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			golden.Equal(t, "flow-rails-"+row.name, renderASCII(viewFlow(flowOf("f", row.steps), noon)))
		})
	}
}

// Each step is drawn on exactly one line.
func TestFlowLines_DrawEachStepOnce(t *testing.T) {
	fan := "root"
	for i := range 40 {
		fan += fmt.Sprintf("; s%d: root", i)
	}
	for _, row := range []struct {
		name, steps string
		count       int
	}{
		{"fan", fan + "; end: s1 s2 s3 s4 s5", 42},
		{"cycle", "a: b; b: a; c", 3},
		{"self", "a: a", 1},
		{"undefined", "a: nosuch", 1},
		{"duplicates", "a; a; b: a", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := viewFlow(flowOf("f", row.steps), noon)
			if n := strings.Count(renderASCII(v), "●"); n != row.count {
				t.Errorf("%d steps drawn, want %d:\n%s", n, row.count, renderASCII(v))
			}
			if n := strings.Count(renderSVG(v), "<rect"); n != row.count {
				t.Errorf("%d boxes, want %d", n, row.count)
			}
		})
	}
}

// Names come from users and must be escaped.
func TestFlowGraph_EscapesNames(t *testing.T) {
	f := flowOf("f", "x")
	f.Spec.Flows[0].Name = `<b>"&\`
	f.Name = `<i>"`
	v := viewFlow(f, noon)
	if err := xml.Unmarshal([]byte(renderSVG(v)), new(any)); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for kind, text := range map[string]string{pictureSVG: renderSVG(v), pictureMermaid: renderMermaid(v)} {
		if strings.Contains(text, "<b>") || strings.Contains(text, "<i>") {
			t.Errorf("%s: %s", kind, text)
		}
	}
	if !strings.Contains(renderDOT(v), `"<b>\"&\\"`) {
		t.Error(renderDOT(v))
	}
}

func TestFlowList_PrintsFlows(t *testing.T) {
	ended := flowOf("broken", "a")
	ended.Status.State.Phase = flowv1.Failed
	ended.Status.StartTime, ended.Status.CompletionTime = &metav1.Time{Time: noon.Add(-time.Hour)}, &metav1.Time{Time: noon.Add(-time.Minute)}
	ended.Status.FlowConditions = []metav1.Condition{{Type: flowv1.ConditionFailed, Status: "True", Message: "step a: its Job broken-a is Failed"}}
	b := newBench(t, nightly(), ended, flowOf("new", "a; b"))
	golden.Equal(t, "flow-list", b.transcript(b.run("flow", "list")))
	names := newBench(t, nightly())
	golden.Equal(t, "flow-list-names", names.transcript(names.run("flow", "list", "-A", "-o", "name")))
	none := newBench(t)
	golden.Equal(t, "flow-list-none", none.transcript(none.run("flow", "list")))
}

// onRobots returns a flow whose only step is a Job on robots that has not started.
func onRobots(name string) *flowv1.JobFlow {
	f := flowOf(name, "drive")
	f.Spec.Flows[0].TemplateRef = &flowv1.TemplateReference{APIGroup: flowv1.TemplateGroupRobots, Kind: "JobTemplate", Name: "drive"}
	f.Status.State.Phase = flowv1.Pending
	ran(f, "drive", batchv1.JobPending, time.Minute)
	f.Status.Steps = []flowv1.StepStatus{{Name: "drive", JobUID: "u"}}
	return f
}

func TestFlowList_ExplainsStepsWithoutRobot(t *testing.T) {
	noRobot := func(t *robotv1.Task) {
		notPlaced("NoRobotFits", "the message is not read")(t)
		t.Status.Placement = &robotv1.PlacementStatus{Robots: 3, Rejections: []robotv1.Rejection{{Check: "Label", Robots: 3, Want: "brush=1"}}}
	}
	objects := []client.Object{onRobots("clean"), named("clean-drive", "pending"), task("clean-drive", "g", 0, noRobot), onRobots("gone")}
	b := newBench(t, objects...)
	golden.Equal(t, "flow-list-no-robot", b.transcript(b.run("flow", "list")))
	drawn := newBench(t, objects...)
	golden.Equal(t, "flow-graph-no-robot", drawn.transcript(drawn.run("flow", "graph", "clean")))
}

// A flow may have a thousand steps that wait for robots.
func TestFlowGraph_ExplainsFirstSteps(t *testing.T) {
	f := onRobots("clean")
	objects := []client.Object{f, named("clean-drive", "pending")}
	for i := range maxExplainedSteps + 5 {
		step := f.Spec.Flows[0]
		step.Name = fmt.Sprintf("drive-%d", i)
		f.Spec.Flows = append(f.Spec.Flows, step)
		ran(f, step.Name, batchv1.JobPending, time.Minute)
		objects = append(objects, named("clean-"+step.Name, "pending"))
	}
	b, lists := newBench(t, objects...), 0
	b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, tasks := list.(*robotv1.TaskList); tasks {
			lists++
		}
		return c.List(ctx, list, opts...)
	}
	if status := b.run("flow", "graph", "clean"); status != 0 || lists != maxExplainedSteps {
		t.Errorf("status %d, the tasks of %d steps are listed, want %d: %s", status, lists, maxExplainedSteps, b.err.String())
	}
}

func TestFlowList_ListsFlowsWhoseTasksAreForbidden(t *testing.T) {
	b := newBench(t, onRobots("clean"), named("clean-drive", "pending"))
	b.hooks.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, tasks := list.(*robotv1.TaskList); tasks {
			return apierrors.NewForbidden(robotv1.GroupVersion.WithResource("tasks").GroupResource(), "", errors.New("no right"))
		}
		return c.List(ctx, list, opts...)
	}
	if status := b.run("flow", "list"); status != 0 || !strings.Contains(b.out.String(), "clean   Pending") {
		t.Errorf("status %d: %s%s", status, b.out.String(), b.err.String())
	}
}

func TestFlowWatch_PrintsChangesToPipe(t *testing.T) {
	b := newBench(t, nightly())
	done := b.start("flow", "watch", "nightly")
	b.awaitWatches(1)
	b.out.await(t, "train-b: Retrying")
	change(b, &flowv1.JobFlow{}, "nightly", func(f *flowv1.JobFlow) {
		f.Status.JobStatusList[2].State, f.Status.JobStatusList[2].EndTimestamp = batchv1.JobCompleted, metav1.NewTime(noon)
	})
	b.out.await(t, "train-a: Completed")
	change(b, &flowv1.JobFlow{}, "nightly", func(f *flowv1.JobFlow) {
		f.Status.Steps = f.Status.Steps[1:]
		f.Status.State.Phase, f.Status.CompletionTime = flowv1.Failed, &metav1.Time{Time: noon}
		f.Status.FlowConditions = []metav1.Condition{{Type: flowv1.ConditionFailed, Status: "True", Message: "step train-b: it has failed"}}
	})
	golden.Equal(t, "flow-watch-failed", b.transcript(b.awaitExit(done)))
}

func TestFlowWatch_ExitsWithOutcome(t *testing.T) {
	well := flowOf("well", "a")
	well.Status.State.Phase = flowv1.Succeed
	b := newBench(t, well)
	golden.Equal(t, "flow-watch-succeeded", b.transcript(b.run("flow", "watch", "well")))

	// A retry is requested, and the status is from before.
	retried := flowOf("retried", "a")
	retried.Generation, retried.Status.ObservedGeneration = 2, 1
	retried.Status.State.Phase = flowv1.Failed
	again := newBench(t, retried)
	followed := again.start("flow", "watch", "retried")
	again.awaitWatches(1)
	change(again, &flowv1.JobFlow{}, "retried", func(f *flowv1.JobFlow) {
		f.Status.ObservedGeneration, f.Status.State.Phase = 2, flowv1.Succeed
	})
	if status := again.awaitExit(followed); status != 0 {
		t.Errorf("exit %d, of the run before: %s", status, again.out.String())
	}

	late := newBench(t, nightly())
	golden.Equal(t, "flow-watch-timeout", late.transcript(late.run("flow", "watch", "nightly", "--wait-timeout", "1ms")))

	gone := newBench(t, nightly())
	done := gone.start("flow", "watch", "nightly")
	gone.awaitWatches(1)
	if err := gone.client.Delete(context.Background(), nightly()); err != nil {
		t.Fatal(err)
	}
	if status := gone.awaitExit(done); status != ExitFailed || !strings.Contains(gone.err.String(), "jobflow nightly was deleted") {
		t.Errorf("exit %d: %s", status, gone.err.String())
	}
}

func TestFlowWatch_DrawsOnTerminal(t *testing.T) {
	b := newBench(t, nightly())
	b.deps.terminal = terminal{live: true, color: true, size: func() size { return size{80, 8} }}
	done := b.start("flow", "watch", "nightly")
	b.awaitWatches(1)
	change(b, &flowv1.JobFlow{}, "nightly", func(f *flowv1.JobFlow) { f.Status.State.Phase = flowv1.Succeed })
	if status := b.awaitExit(done); status != 0 {
		t.Errorf("exit %d", status)
	}
	golden.Equal(t, "flow-watch-terminal", b.transcript(0))
}

func TestFlowActions_PatchSpec(t *testing.T) {
	in := func(phase flowv1.Phase, more ...func(*flowv1.JobFlow)) *flowv1.JobFlow {
		f := flowOf("f", "a; b: a")
		f.Status.State.Phase = phase
		for _, m := range more {
			m(f)
		}
		return f
	}
	failedStep := func(f *flowv1.JobFlow) { ran(f, "a", batchv1.JobFailed, time.Minute) }
	retried := func(f *flowv1.JobFlow) { f.Spec.Retry = &flowv1.RetryRequest{Generation: 3, Flows: []string{"a"}} }
	spec := func(f *flowv1.JobFlow) string {
		text := fmt.Sprintf("suspend=%t cancel=%t", f.Spec.Suspend, f.Spec.Cancel)
		if r := f.Spec.Retry; r != nil {
			text += fmt.Sprintf(" retry=%d%v", r.Generation, r.Flows)
		}
		return text
	}
	for _, row := range []struct {
		name    string
		args    string
		flow    *flowv1.JobFlow
		message string // a part of the output
		want    string // a part of the patched spec; if empty, the action is rejected
	}{
		{"suspend what runs", "suspend f", in(flowv1.Running), "suspended; running steps continue", "suspend=true cancel=false"},
		{"suspend a new flow", "suspend f", in(""), "suspended", "suspend=true cancel=false"},
		{"suspend twice", "suspend f", in(flowv1.Running, func(f *flowv1.JobFlow) { f.Spec.Suspend = true }), "already suspended", "suspend=true cancel=false"},
		{"suspend what has ended", "suspend f", in(flowv1.Succeed), "jobflow f is Succeed: it can be retried with --step or deleted", ""},
		{"resume", "resume flow/f", in(flowv1.Running, func(f *flowv1.JobFlow) { f.Spec.Suspend = true }), "resumed", "suspend=false cancel=false"},
		{"resume what is not suspended", "resume f", in(flowv1.Running), "not suspended", "suspend=false cancel=false"},
		{"resume what has failed", "resume f", in(flowv1.Failed), "jobflow f is Failed: it can be retried or deleted", ""},
		{"cancel", "cancel f", in(flowv1.Pending), "cancel requested", "suspend=false cancel=true"},
		{"cancel what still runs of a failed one", "cancel f", in(flowv1.Failed), "cancel requested", "suspend=false cancel=true"},
		{"cancel what has succeeded", "cancel f", in(flowv1.Succeed), "jobflow f is Succeed", ""},
		{"cancel what is being stopped", "cancel f", in(flowv1.Terminating), "it can be retried once it has failed", ""},
		{"retry what has failed", "retry f", in(flowv1.Failed), "retry of the failed steps requested", "suspend=false cancel=false retry=1[]"},
		{"retry takes a cancel back", "retry f", in(flowv1.Failed, func(f *flowv1.JobFlow) { f.Spec.Cancel, f.Status.Retry = true, 4 }),
			"retry of the failed steps requested", "suspend=false cancel=false retry=5[]"},
		{"retry of a suspended flow", "retry f", in(flowv1.Failed, func(f *flowv1.JobFlow) { f.Spec.Suspend = true }), "stays suspended", "suspend=true cancel=false retry=1[]"},
		{"retry while others run", "retry f", in(flowv1.Running, failedStep), "requested", "suspend=false cancel=false retry=1[]"},
		{"retry of nothing", "retry f", in(flowv1.Running), "none of its steps has failed: select the steps to retry with --step", ""},
		{"retry of a step", "retry f --step b", in(flowv1.Succeed), "retry of b requested", "suspend=false cancel=false retry=1[b]"},
		{"retry of an unknown step", "retry f --step x", in(flowv1.Succeed), "jobflow f has no step \"x\"; its steps are a, b", ""},
		{"retry while it is being stopped", "retry f", in(flowv1.Terminating), "jobflow f is Terminating", ""},
		{"retry of one more", "retry f --step b", in(flowv1.Failed, retried), "retry of b requested", "suspend=false cancel=false retry=4[a b]"},
		{"retry of the same", "retry f --step a", in(flowv1.Failed, retried), "already requested", "suspend=false cancel=false retry=3[a]"},
		{"retry of other steps before the first retry starts", "retry f", in(flowv1.Failed, retried), "has a pending retry", ""},
		{"no such flow", "suspend x", in(flowv1.Running), `jobflow "x" not found in namespace default`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.flow)
			before := spec(row.flow)
			status := b.run(append([]string{"flow"}, strings.Fields(row.args)...)...)
			message := b.out.String() + b.err.String()
			if !strings.Contains(message, row.message) {
				t.Errorf("message %q, want %q", message, row.message)
			}
			got := &flowv1.JobFlow{}
			if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(row.flow), got); err != nil {
				t.Fatal(err)
			}
			want, wantStatus := row.want, 0
			if want == "" {
				want, wantStatus = before, ExitFailed
			}
			if spec(got) != want || status != wantStatus {
				t.Errorf("exit %d, spec %s; want %d, %s", status, spec(got), wantStatus, want)
			}
		})
	}
}

// A flow that waits for an aborted Job is resumed by resuming the Job.
func TestFlowResume_ResumesAbortedJob(t *testing.T) {
	f := flowOf("f", "a")
	ran(f, "a", batchv1.JobAborted, time.Minute)
	f.Status.State.Phase, f.Status.UnKnowJobs = flowv1.Running, []string{"f-a"}
	b := newBench(t, f, &batchv1.Job{ObjectMeta: metaOf("f-a")})
	if status := b.run("flow", "resume", "f"); status != 0 || !strings.Contains(b.out.String(), "resume requested for aborted jobs f-a") {
		t.Errorf("exit %d: %s%s", status, b.out.String(), b.err.String())
	}
	commands := &busv1.CommandList{}
	if err := b.client.List(t.Context(), commands); err != nil || len(commands.Items) != 1 {
		t.Fatalf("%v, %d commands", err, len(commands.Items))
	}
	if c := commands.Items[0]; c.Action != "ResumeJob" || c.TargetObject.Name != "f-a" || c.TargetObject.Kind != "Job" || c.TargetObject.APIVersion != "batch.volcano.sh/v1alpha1" {
		t.Errorf("%+v", c)
	}
}

// owned sets the controller of an object.
func owned[T client.Object](o T, by client.Object, kind string) T {
	o.SetOwnerReferences([]metav1.OwnerReference{{Kind: kind, Name: by.GetName(), UID: by.GetUID(), Controller: ptr.To(true)}})
	return o
}

// podOf returns a Pod of a Job whose containers have started.
func podOf(job client.Object, task string, index int, containers ...string) *corev1.Pod {
	p := owned(&corev1.Pod{ObjectMeta: metaOf(fmt.Sprintf("%s-%s-%d", job.GetName(), task, index))}, job, "Job")
	p.Labels = map[string]string{batchv1.KeyJobName: job.GetName(), batchv1.KeyTaskSpec: task, batchv1.KeyTaskIndex: fmt.Sprint(index)}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	return p
}

// loggedFlow returns a flow with a step on robots, a step of Pods and a step that has not
// started.
func loggedFlow() (*flowv1.JobFlow, []client.Object) {
	f := flowOf("f", "look; train: look; later: train")
	f.Status.State.Phase = flowv1.Running
	ran(f, "look", batchv1.JobCompleted, time.Minute)
	ran(f, "train", batchv1.JobRunning, time.Minute)
	robots := owned(job("f-look"), f, "JobFlow")
	robots.Status.State = "completed"
	started := task("f-look", "g", 0, func(t *robotv1.Task) { t.Status.Attempt, t.Status.State = 1, "succeeded" })
	pods := owned(&batchv1.Job{ObjectMeta: metaOf("f-train")}, f, "JobFlow")
	foreign := podOf(pods, "other", 0, "c")
	foreign.OwnerReferences[0].UID = types.UID("another")
	return f, []client.Object{f, robots, started, pods, foreign, podOf(pods, "ps", 10, "c"), podOf(pods, "ps", 2, "c", "side"), podOf(pods, "ps", 3)}
}

// withLogs sets the log of each task and container.
func (b *bench) withLogs(text func(source string) string) {
	connect := b.deps.connect
	b.deps.connect = func(conn *connection) (*cluster, error) {
		c, err := connect(conn)
		c.podLogs = func(_ context.Context, _, pod string, o corev1.PodLogOptions) (io.ReadCloser, error) {
			if strings.HasPrefix(pod, "gone") {
				return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod)
			}
			return io.NopCloser(strings.NewReader(text(pod + " " + o.Container))), nil
		}
		c.logs = func(_ context.Context, _, _, task string, _ query.Query) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(recordsOf(text(task)))), nil
		}
		return c, err
	}
}

func TestFlowLogs_PrintsStepsInOrder(t *testing.T) {
	_, objects := loggedFlow()
	b := newBench(t, objects...)
	b.withLogs(func(source string) string { return "first of " + source + "\n" + strings.Repeat("x", 10) })
	golden.Equal(t, "flow-logs", b.transcript(b.run("flow", "logs", "f")))
	one := newBench(t, objects...)
	one.withLogs(func(source string) string { return source })
	golden.Equal(t, "flow-logs-step", one.transcript(one.run("flow", "logs", "f", "--step", "later")))
	none := newBench(t, objects...)
	if status := none.run("flow", "logs", "f", "--step", "x"); status != ExitFailed || !strings.Contains(none.err.String(), `has no step "x"`) {
		t.Errorf("exit %d: %s", status, none.err.String())
	}
}

func TestFlowLogs_FollowsStepsThatStartLater(t *testing.T) {
	f, objects := loggedFlow()
	b := newBench(t, objects...)
	b.withLogs(func(source string) string { return "log of " + source + "\n" })
	done := b.start("flow", "logs", "-f", "f")
	b.out.await(t, "[train/ps-10] log of f-train-ps-10 c")
	b.awaitWatchesOf(&flowv1.JobFlowList{}, &corev1.PodList{})
	later := owned(&batchv1.Job{ObjectMeta: metaOf("f-later")}, f, "JobFlow")
	for _, o := range []client.Object{later, podOf(later, "t", 0, "c")} {
		if err := b.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	b.out.await(t, "[later/t-0] log of f-later-t-0 c")
	change(b, &flowv1.JobFlow{}, "f", func(f *flowv1.JobFlow) { f.Status.State.Phase = flowv1.Succeed })
	if status := b.awaitExit(done); status != 0 {
		t.Errorf("exit %d: %s", status, b.err.String())
	}
	for line, n := range map[string]int{"[look/f-look-g-0-main] log of f-look-g-0-main": 1, "[train/ps-2/side] log of f-train-ps-2 side": 1, "another": 0, "other": 0} {
		if got := strings.Count(b.out.String(), line); got != n {
			t.Errorf("%q is there %d times, want %d:\n%s", line, got, n, b.out.String())
		}
	}
}

func TestFlow_RejectsInvalidInput(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"flow graph f -o png", "--output=png: must be ascii, mermaid, dot, svg"},
		{"flow list -o wide", "--output=wide: must be json, yaml, name"},
		{"flow watch", "watch: accepts 1 arg(s), received 0"},
		{"flow watch robot/r", `"robot/r" does not name a jobflow`},
		{"flow watch f --wait-timeout -1s", "--wait-timeout=-1s: must not be negative"},
		{"flow retry a b --step x", "--step: requires exactly one flow"},
		{"flow retyr f", `unknown command "retyr"; did you mean retry?`},
	} {
		t.Run(row.args, func(t *testing.T) {
			b := newBench(t)
			if status := b.run(strings.Fields(row.args)...); status != ExitUsage || !strings.Contains(b.err.String(), row.want) {
				t.Errorf("exit %d: %s", status, b.err.String())
			}
		})
	}
}

func TestFlow_HelpAndCompletion(t *testing.T) {
	for _, verb := range []string{"", "list", "watch", "graph", "retry", "suspend", "resume", "cancel", "logs"} {
		b := newBench(t)
		name := strings.TrimSuffix("help-flow-"+verb, "-")
		golden.Equal(t, name, b.transcript(b.run(append(strings.Fields("flow "+verb), "--help")...)))
	}
	for args, want := range map[string]string{
		"flow retry n": "nightly\n:4\n", "flow graph nightly -o ": "ascii\nmermaid\ndot\nsvg\n:4\n", "flow logs ": "nightly\n:4\n",
	} {
		b := newBench(t, nightly())
		b.run(append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if b.out.String() != want {
			t.Errorf("%s: %q", args, b.out.String())
		}
	}
}

// recordsOf encodes text as the server sends it.
func recordsOf(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(logRecord(record.Stdout, line))
	}
	return b.String()
}
