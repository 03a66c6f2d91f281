package console

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	busv1 "k8s4r.io/k8s4r/api/bus/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/console/row"
	"k8s4r.io/k8s4r/internal/console/watch"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

func TestDescribeConsequence_CountsAffectedParts(t *testing.T) {
	for _, c := range []struct {
		action           verb
		running, waiting int32
		want             string
	}{
		{actCancel, 0, 0, ""},
		{actCancel, 1, 0, "; 1 running task will be stopped"},
		{actCancel, 0, 1, "; 1 pending task will be canceled"},
		{actCancel, 3, 2, "; 3 running tasks will be stopped and 2 pending tasks will be canceled"},
		{actDelete, 1, 12, "; 1 running task will be stopped and 12 pending tasks will be canceled"},
		{actPause, 3, 0, "; 3 running tasks will continue to the end"},
		{actPause, 0, 2, "; 2 pending tasks will be held back"},
		{actPause, 1, 1, "; 1 running task will continue to the end and 1 pending task will be held back"},
		{actResume, 3, 2, ""},
		{actRequeue, 3, 2, ""},
		{actPriority, 3, 2, ""},
	} {
		item := &watch.Item{Row: &row.Row{Kind: row.Jobs, Progress: &row.Progress{Total: 20, Running: c.running, Waiting: c.waiting, Done: 4, Failed: 1}}}
		if got := describeConsequence(c.action, item); got != c.want {
			t.Errorf("%s with %d running and %d waiting: got %q, want %q", c.action, c.running, c.waiting, got, c.want)
		}
	}
	for _, kind := range []row.Kind{row.VCJobs, row.RayClusters} {
		item := &watch.Item{Row: &row.Row{Kind: kind, Progress: &row.Progress{Total: 2, Running: 2}}}
		if got, want := describeConsequence(actPause, item), "; 2 running Pods will be stopped"; got != want {
			t.Errorf("pause of %s: got %q, want %q", kind, got, want)
		}
	}
	if got := describeConsequence(actDelete, nil) + describeConsequence(actDelete, &watch.Item{Row: &row.Row{}}); got != "" {
		t.Errorf("of an object without parts: %q", got)
	}
}

func jobIn(name, state string) *v1alpha1.Job {
	j := &v1alpha1.Job{ObjectMeta: metaOf(name)}
	j.Status.State = state
	return j
}

func taskIn(name, job, state string) *v1alpha1.Task {
	t := &v1alpha1.Task{ObjectMeta: metaOf(name)}
	t.Spec.JobName, t.Status.State = job, state
	return t
}

func flowWith(name string, phase flowv1.Phase) *flowv1.JobFlow {
	f := &flowv1.JobFlow{ObjectMeta: metaOf(name)}
	f.Status.State.Phase = phase
	return f
}

func vcjobIn(name string, phase batchv1.JobPhase) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metaOf(name)}
	j.Status.State.Phase = phase
	return j
}

// abortedFlow returns a flow that waits for its aborted job f-a.
func abortedFlow() *flowv1.JobFlow {
	f := flowWith("f", flowv1.Running)
	f.Status.UnKnowJobs = []string{"f-a"}
	f.Status.JobStatusList = []flowv1.JobStatus{{Name: "f-a", State: batchv1.JobAborted}}
	return f
}

func TestListActions_FollowsState(t *testing.T) {
	robot := func(cordoned, drained bool) *v1alpha1.Robot {
		return &v1alpha1.Robot{ObjectMeta: metaOf("r"), Spec: v1alpha1.RobotSpec{Unschedulable: cordoned, Drain: drained}}
	}
	inMaintenance, unlocked := robot(false, false), robot(false, false)
	inMaintenance.Status.Maintenance = &v1alpha1.RobotMaintenance{ID: "m1"}
	unlocked.Status.Maintenance, unlocked.Spec.UnlockMaintenance = inMaintenance.Status.Maintenance, "m1"
	pausedJob := jobIn("j", "paused")
	pausedJob.Spec.DesiredState = v1alpha1.DesiredPaused
	suspended := flowWith("f", flowv1.Running)
	suspended.Spec.Suspend = true
	cron := &cronv1.CronJobFlow{ObjectMeta: metaOf("c")}
	cron.Spec.Suspend = true
	allApproved, paused := rolloutIn(v1alpha1.RolloutProgressing), rolloutIn(v1alpha1.RolloutPaused)
	allApproved.Spec.ApprovedWaves, paused.Spec.DesiredState = []string{"rest"}, v1alpha1.RolloutDesiredPaused
	for _, c := range []struct {
		name   string
		object client.Object
		want   string
	}{
		{"a running job", jobIn("j", "running"), "pause priority cancel delete"},
		{"a paused job", pausedJob, "resume requeue priority cancel delete"},
		{"a completed job", jobIn("j", "completed"), "requeue delete"},
		{"a Rollout", rolloutIn(v1alpha1.RolloutProgressing), "pause approve abort revert delete"},
		{"a Rollout whose waves are all approved", allApproved, "pause abort revert delete"},
		{"a paused Rollout", paused, "resume approve abort revert delete"},
		{"an aborted Rollout", rolloutIn(v1alpha1.RolloutAborted), "revert delete"},
		{"a complete Rollout", rolloutIn(v1alpha1.RolloutComplete), "delete"},
		{"a pending task", taskIn("t", "j", "pending"), "delete"},
		{"a running task", taskIn("t", "j", "running"), "delete"},
		{"a failed task", taskIn("t", "j", "failed"), "requeue delete"},
		{"a failed task without a job", taskIn("t", "", "failed"), "delete"},
		{"a robot", robot(false, false), "cordon drain delete"},
		{"a cordoned robot", robot(true, false), "uncordon drain delete"},
		{"a drained robot", robot(false, true), "cordon uncordon delete"},
		{"a robot in maintenance", inMaintenance, "cordon drain unlock delete"},
		{"a robot whose unlock is requested", unlocked, "cordon drain delete"},
		{"a running flow", flowWith("f", flowv1.Running), "pause cancel delete"},
		{"a suspended flow", suspended, "resume cancel delete"},
		{"a flow with an aborted job", abortedFlow(), "pause resume cancel delete"},
		{"a failed flow", flowWith("f", flowv1.Failed), "requeue cancel delete"},
		{"a completed flow", flowWith("f", flowv1.Succeed), "delete"},
		{"a schedule", &cronv1.CronJobFlow{ObjectMeta: metaOf("c")}, "pause delete"},
		{"a suspended schedule", cron, "resume delete"},
		{"a new vcjob", vcjobIn("v", ""), "pause cancel delete"},
		{"an aborted vcjob", vcjobIn("v", batchv1.JobAborted), "resume cancel delete"},
		{"a completed vcjob", vcjobIn("v", batchv1.JobCompleted), "delete"},
		{"a cluster", &rayv1.RayCluster{ObjectMeta: metaOf("r")}, "pause delete"},
		{"a pod", &corev1.Pod{ObjectMeta: metaOf("p")}, "delete"},
		{"a task group", &v1alpha1.TaskGroup{ObjectMeta: metaOf("g")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.object.DeepCopyObject()
			var got []string
			for _, a := range NewServer(Parts{}).listActions(newFakeStore(c.object).items[0]) {
				got = append(got, string(a.Action))
				if destructive := slices.Contains([]verb{actDrain, actUnlock, actCancel, actAbort, actRevert, actDelete}, a.Action); a.Destructive != destructive {
					t.Errorf("%s: destructive is %t", a.Action, a.Destructive)
				}
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if !reflect.DeepEqual(before, c.object.DeepCopyObject()) {
				t.Error("the object was changed")
			}
		})
	}
}

// runActions applies an action with a fake client and returns a line for each result.
func runActions(t *testing.T, d executor, items []target, objects ...client.Object) ([]string, client.Client) {
	t.Helper()
	d.s, _ = newTestServer(&fakeGate{}, objects...)
	var stored []client.Object
	for _, o := range objects {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		stored = append(stored, o)
	}
	d.c = fakeapi.NewBuilder(NewScheme()).WithObjects(stored...).Build()
	results := make([]result, len(items))
	d.runAll(t.Context(), items, results)
	var lines []string
	for i, r := range results {
		lines = append(lines, fmt.Sprintf("%s %t: %s", items[i].Name, r.OK, r.Message))
	}
	return lines, d.c
}

func on(k row.Kind, names ...string) (items []target) {
	for _, name := range names {
		items = append(items, target{Kind: string(k), Namespace: "n", Name: name})
	}
	return items
}

func TestRunAll_PatchesSpec(t *testing.T) {
	busy := jobIn("busy", "running")
	busy.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 6, RunningTasks: 2, PendingTasks: 1, SucceededTasks: 3}
	yes := true
	reverts := rolloutIn(v1alpha1.RolloutProgressing)
	reverts.Spec.OnAbort = v1alpha1.OnAbortRevert
	suspendedRay := &rayv1.RayCluster{ObjectMeta: metaOf("r")}
	suspendedRay.Spec.Suspend = &yes
	spec := func(o client.Object) string {
		switch o := o.(type) {
		case *v1alpha1.Job:
			return fmt.Sprintf("%q %v %v", o.Spec.DesiredState, o.Spec.Requeue != nil, o.Spec.Priority != nil && *o.Spec.Priority == 80)
		case *v1alpha1.Rollout:
			return fmt.Sprintf("%q %v", o.Spec.DesiredState, o.Spec.ApprovedWaves)
		case *v1alpha1.Robot:
			return fmt.Sprint(o.Spec.Unschedulable, o.Spec.Drain)
		case *flowv1.JobFlow:
			return fmt.Sprint(o.Spec.Suspend, o.Spec.Cancel, o.Spec.Retry != nil)
		case *cronv1.CronJobFlow:
			return fmt.Sprint(o.Spec.Suspend)
		case *rayv1.RayCluster:
			return fmt.Sprint(o.Spec.Suspend != nil && *o.Spec.Suspend)
		}
		return ""
	}
	for _, c := range []struct {
		action       verb
		object       client.Object
		message      string
		before, want string
	}{
		{actPause, busy, "pause requested; 2 running tasks will continue to the end and 1 pending task will be held back", `"" false false`, `"paused" false false`},
		{actCancel, busy, "cancel requested; 2 running tasks will be stopped and 1 pending task will be canceled", `"" false false`, `"canceled" false false`},
		{actPriority, busy, "priority set to 80", `"" false false`, `"" false true`},
		{actRequeue, jobIn("j", "completed"), "requeue of all tasks requested", `"" false false`, `"" true false`},
		{actPause, rolloutIn(v1alpha1.RolloutProgressing), "pause requested; 3 units will not be changed", `"" []`, `"paused" []`},
		{actApprove, rolloutIn(v1alpha1.RolloutProgressing), "approved: rest", `"" []`, `"" [rest]`},
		{actRevert, rolloutIn(v1alpha1.RolloutAborted), "revert requested; 5 units will return to the revision of before", `"" []`, `"reverted" []`},
		{actAbort, reverts, "abort requested; 5 units will return to the revision of before", `"" []`, `"aborted" []`},
		{actDrain, &v1alpha1.Robot{ObjectMeta: metaOf("r")}, "drain requested", "false false", "false true"},
		{actCordon, &v1alpha1.Robot{ObjectMeta: metaOf("r")}, "cordoned", "false false", "true false"},
		{actPause, flowWith("f", flowv1.Running), "suspended; running steps continue", "false false false", "true false false"},
		{actRequeue, flowWith("f", flowv1.Failed), "retry of the failed steps requested", "false false false", "false false true"},
		{actPause, &cronv1.CronJobFlow{ObjectMeta: metaOf("c")}, "suspended", "false", "true"},
		{actPause, &rayv1.RayCluster{ObjectMeta: metaOf("r")}, "suspended", "false", "true"},
		{actResume, suspendedRay, "resumed", "true", "false"},
	} {
		k, name := row.Describe(c.object).Kind, c.object.GetName()
		t.Run(string(c.action)+" "+string(k), func(t *testing.T) {
			for _, dry := range []bool{true, false} {
				lines, stored := runActions(t, executor{action: c.action, priority: 80, wave: "rest", dry: dry}, on(k, name), c.object)
				got := kinds[k].fresh()
				if err := stored.Get(t.Context(), client.ObjectKeyFromObject(c.object), got); err != nil {
					t.Fatal(err)
				}
				want := map[bool]string{true: c.before, false: c.want}[dry]
				if lines[0] != name+" true: "+c.message || spec(got) != want {
					t.Errorf("dry run %t: %s, spec %s, want %s, %s", dry, lines[0], spec(got), c.message, want)
				}
			}
		})
	}
}

func TestRunAll_ReportsEachResult(t *testing.T) {
	another := on(row.Jobs, "b")[0]
	another.UID = "of an earlier object"
	same := on(row.Jobs, "c")[0]
	same.UID = "c"
	got, _ := runActions(t, executor{action: actPause}, append(on(row.Jobs, "a", "missing", "done"), another, same, on(row.Pods, "p")[0]),
		jobIn("a", "running"), jobIn("b", "running"), jobIn("c", "running"), jobIn("done", "completed"), &corev1.Pod{ObjectMeta: metaOf("p")})
	want := []string{
		"a true: pause requested",
		`missing false: jobs.robot.k8s4r.io "missing" not found`,
		"done false: job done is completed; allowed actions: requeue",
		"b false: jobs b has another UID than requested: the object was deleted and created again",
		"c true: pause requested",
		"p false: action pause is not available for pods",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestRunAll_DeletesOnlyMeantObject(t *testing.T) {
	items := on(row.Jobs, "a", "b")
	items[1].UID = "of an earlier object"
	busy := jobIn("a", "running")
	busy.Status.TaskCounts = v1alpha1.TaskCounts{TotalTasks: 1, RunningTasks: 1}
	for dry, want := range map[bool]string{true: "a true: will be deleted; 1 running task will be stopped", false: "a true: deleted; 1 running task will be stopped"} {
		got, stored := runActions(t, executor{action: actDelete, dry: dry}, items, busy, jobIn("b", "running"))
		var left v1alpha1.JobList
		if err := stored.List(t.Context(), &left); err != nil {
			t.Fatal(err)
		}
		if got[0] != want || got[1] != "b false: jobs b has another UID than requested: the object was deleted and created again" || len(left.Items) != map[bool]int{true: 2, false: 1}[dry] {
			t.Errorf("dry run %t: %q, %d jobs are left", dry, got, len(left.Items))
		}
	}
}

func TestRunAll_RequeuesTasksOfJobTogether(t *testing.T) {
	got, stored := runActions(t, executor{action: actRequeue}, on(row.Tasks, "a1", "b1", "a2", "a3", "a4", "alone", "missing"),
		jobIn("a", "running"), jobIn("b", "completed"), taskIn("a1", "a", "failed"), taskIn("a2", "a", "pending"), taskIn("a3", "a", "running"), taskIn("a4", "a", "completed"),
		taskIn("b1", "b", "failed"), taskIn("alone", "", "failed"))
	want := []string{
		"a1 true: requeue requested",
		"b1 true: requeue requested",
		"a2 true: already pending",
		"a3 false: task a3 is running: it can be requeued when it has ended",
		"a4 true: requeue requested",
		"alone false: task alone belongs to no job and cannot be requeued: delete it and create it again",
		`missing false: tasks.robot.k8s4r.io "missing" not found`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for name, want := range map[string][]string{"a": {"a1", "a4"}, "b": {"b1"}} {
		var j v1alpha1.Job
		if err := stored.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: name}, &j); err != nil {
			t.Fatal(err)
		}
		if r := j.Spec.Requeue; r == nil || r.Generation != 1 || !slices.Equal(r.Tasks, want) {
			t.Errorf("job %s: requeue %+v, want generation 1 of %v", name, r, want)
		}
	}
}

func TestRunAll_SendsCommandsToVCJobs(t *testing.T) {
	for _, c := range []struct {
		action verb
		phase  batchv1.JobPhase
		want   string // the Command's action; empty: none
		line   string
	}{
		{actPause, batchv1.JobRunning, "AbortJob", "f-a true: pause requested"},
		{actPause, "", "AbortJob", "f-a true: pause requested"},
		{actResume, batchv1.JobAborted, "ResumeJob", "f-a true: resume requested"},
		{actCancel, batchv1.JobAborted, "TerminateJob", "f-a true: cancel requested"},
		{actCancel, batchv1.JobCompleted, "", "f-a false: job f-a is Completed; cancel is allowed in: Pending, Running, Restarting, Aborted"},
		{actResume, batchv1.JobRunning, "", "f-a false: job f-a is Running; resume is allowed in: Aborted"},
	} {
		t.Run(fmt.Sprint(c.action, c.phase), func(t *testing.T) {
			for _, dry := range []bool{true, false} {
				got, stored := runActions(t, executor{action: c.action, dry: dry}, on(row.VCJobs, "f-a"), vcjobIn("f-a", c.phase))
				if got[0] != c.line {
					t.Errorf("got %q, want %q", got[0], c.line)
				}
				if want := map[bool]string{false: c.want}[dry]; sentCommands(t, stored) != want {
					t.Errorf("dry run %t: sent %q, want %q", dry, sentCommands(t, stored), want)
				}
			}
		})
	}
	t.Run("resume of a flow resumes its aborted jobs", func(t *testing.T) {
		got, stored := runActions(t, executor{action: actResume}, on(row.JobFlows, "f"), abortedFlow(), vcjobIn("f-a", batchv1.JobAborted))
		if got[0] != "f true: resume requested for the aborted jobs" || sentCommands(t, stored) != "ResumeJob" {
			t.Errorf("got %q, sent %q", got, sentCommands(t, stored))
		}
	})
	t.Run("resume of a flow whose aborted job is gone", func(t *testing.T) {
		got, _ := runActions(t, executor{action: actResume}, on(row.JobFlows, "f"), abortedFlow())
		if got[0] != `f false: jobs.batch.volcano.sh "f-a" not found` {
			t.Errorf("got %q", got)
		}
	})
}

// sentCommands returns the actions of the Commands, which must belong to the vcjob f-a.
func sentCommands(t *testing.T, c client.Client) string {
	t.Helper()
	var all busv1.CommandList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var sent []string
	for i := range all.Items {
		o := &all.Items[i]
		want := ownedBy("batch.volcano.sh/v1alpha1", "Job", "f-a")
		if by := metav1.GetControllerOf(o); by == nil || by.Name != want.Name || by.UID != want.UID || o.TargetObject == nil || o.TargetObject.Name != "f-a" || o.Namespace != "n" {
			t.Errorf("the Command %+v is for another object", o)
		}
		sent = append(sent, o.Action)
	}
	return strings.Join(sent, " ")
}

func TestSetOutcome_ShowsMessageOfAPIServer(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Group: "robot.k8s4r.io", Resource: "jobs"}, "j", errors.New("no permission"))
	for _, c := range []struct {
		err  error
		want result
	}{
		{nil, result{OK: true, Message: "done"}},
		{errReview, result{Message: "review: connection refused"}},
		{fmt.Errorf("bind: %w", denied), result{Message: denied.ErrStatus.Message}},
	} {
		var got result
		if got.setOutcome("done", c.err); got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.err, got, c.want)
		}
	}
}

func TestPostActions_RequiresPriorityForItsActionOnly(t *testing.T) {
	s, _ := newTestServer(&fakeGate{})
	const items = `"items":[{"kind":"jobs","namespace":"n","name":"j"}]`
	for body, code := range map[string]int{
		`{"action":"priority",` + items + `}`:                                           400,
		`{"action":"pause","priority":5,` + items + `}`:                                 400,
		`{"action":"priority","priority":101,` + items + `}`:                            422,
		`{"action":"explode",` + items + `}`:                                            422,
		`{"action":"pause","items":[]}`:                                                 422,
		`{"action":"pause","items":[{"kind":"taskgroups","namespace":"n","name":"g"}]}`: 422,
	} {
		var got metav1.Status
		if is := serve(t, s, "POST", "/api/v1/actions", body, &got); is != code || got.Kind != "Status" {
			t.Errorf("%s: got %d %s, want %d", body, is, cmp.Or(got.Message, "without a message"), code)
		}
	}
}
