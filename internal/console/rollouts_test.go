package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// rolloutIn returns a Rollout of job j with a wave canary for the robots with the label canary, which has started, and a
// wave rest that needs an approval.
func rolloutIn(phase string) *v1alpha1.Rollout {
	r := &v1alpha1.Rollout{ObjectMeta: metaOf("r")}
	r.Spec.Target.Name, r.Spec.OnAbort = "j", v1alpha1.OnAbortPause
	r.Spec.Waves = []v1alpha1.RolloutWave{
		{Name: "canary", RobotSelector: map[string]string{"canary": "yes"}, Pause: new(v1alpha1.Duration("1h")), HealthyFor: new(v1alpha1.Duration("1m"))},
		{Name: "rest", Percent: new(int32(100)), Approval: v1alpha1.ApprovalManual},
	}
	r.Status = v1alpha1.RolloutStatus{Phase: phase, Revision: 2, FromRevision: 1, TargetUID: "j", StartedAt: minute(-9)}
	counts := v1alpha1.RolloutCounts{Total: 7, Updated: 1, Updating: 2, Failed: 2, Waiting: 1, OutOfContact: 1}
	r.Status.Waves = []v1alpha1.RolloutWaveStatus{{Name: "canary", Bound: rollout.EndPosition, AdmittedBound: rollout.EndPosition, StartedAt: minute(-9), RolloutCounts: counts}}
	r.Status.Counts = counts
	r.Status.Counts.Total, r.Status.Counts.Waiting = 8, 2
	return r
}

// fleetOf returns job j of type system with one task for each robot, and the robots. Tasks have the revision "new", if not
// named otherwise.
func fleetOf(tasks map[string]v1alpha1.Task) []client.Object {
	j := &v1alpha1.Job{ObjectMeta: metaOf("j")}
	j.Spec.Type, j.Status.CurrentRevision, j.Status.UpdateRevision = v1alpha1.JobTypeSystem, 1, 2
	def := v1alpha1.TaskDefinition{Name: "main", Driver: "exec"}
	j.Spec.TaskGroups = []v1alpha1.TaskGroupDefinition{{Name: "g", TaskGroupTemplate: v1alpha1.TaskGroupTemplate{Tasks: []v1alpha1.TaskDefinition{def}}}}
	g := &v1alpha1.TaskGroup{ObjectMeta: metaOf("j-g", ownedBy(v1alpha1.GroupVersion.String(), "Job", "j"))}
	g.Spec.JobName, g.Spec.GroupName = "j", "g"
	g.Status.Revisions, g.Status.RolloutRevisions = map[string]string{"main": "old"}, map[string]string{"main": "new"}
	out := []client.Object{j, g}
	for robot, t := range tasks {
		r := &v1alpha1.Robot{ObjectMeta: metaOf(robot)}
		r.Spec.Labels = map[string]string{"canary": "yes"}
		r.Status.Phase, r.Status.LastHeartbeatTime = "online", minute(0)
		r.Status.DeviceInfo = &v1alpha1.DeviceInfo{Drivers: []string{"exec"}}
		if strings.HasPrefix(robot, "off") {
			r.Status.Phase, r.Status.LastHeartbeatTime = "offline", minute(-5)
		}
		if robot == "later" {
			r.Spec.Labels = nil
		}
		out = append(out, r)
		if t.Status.State != "" {
			out = append(out, taskOnRobot(robot, t))
		}
	}
	return out
}

func taskOnRobot(robot string, t v1alpha1.Task) *v1alpha1.Task {
	meta := metaOf("task-"+robot, ownedBy(v1alpha1.GroupVersion.String(), "TaskGroup", "j-g"))
	meta.Labels = map[string]string{v1alpha1.LabelRevision: "new"}
	if v := t.Labels[v1alpha1.LabelRevision]; v != "" {
		meta.Labels = t.Labels
	}
	t.ObjectMeta = meta
	t.Spec.Type, t.Spec.TargetRobot, t.Spec.JobName, t.Spec.TaskGroupName, t.Spec.Name = v1alpha1.JobTypeSystem, robot, "j", "j-g", "main"
	t.Status.Attempt = 1
	return &t
}

// ranFrom returns a task in a state whose run started n minutes after noon.
func ranFrom(state string, n int) v1alpha1.Task {
	t := v1alpha1.Task{}
	t.Status = v1alpha1.TaskStatus{State: state, Attempts: []v1alpha1.TaskAttempt{{Attempt: 1, StartedAt: minute(n)}}}
	return t
}

func withOldRevision(t v1alpha1.Task) v1alpha1.Task {
	t.Labels = map[string]string{v1alpha1.LabelRevision: "old"}
	return t
}

func failedWith(reason string) v1alpha1.Task {
	t := ranFrom("failed", -2)
	t.Status.Reason, t.Status.Message = reason, "exit code 3"
	return t
}

// sampleFleet has a robot in each state.
func sampleFleet() []client.Object {
	return fleetOf(map[string]v1alpha1.Task{
		"broken": failedWith("Exited"), "slow": ranFrom("dispatching", -8), "done": ranFrom("running", -2), "young": ranFrom("running", 0),
		"old": withOldRevision(ranFrom("running", -60)), "off-old": withOldRevision(ranFrom("unknown", -60)),
		"off-done": ranFrom("unknown", -8), "later": withOldRevision(ranFrom("running", -60)), "empty": {},
	})
}

func getUnits(t *testing.T, s *Server, query string) unitList {
	t.Helper()
	var out unitList
	if code := serve(t, s, http.MethodGet, "/api/v1/objects/rollouts/n/r/units"+query, "", &out); code != http.StatusOK {
		t.Fatalf("units%s: status %d", query, code)
	}
	return out
}

func formatUnits(all []rolloutUnit) string {
	var lines []string
	for _, u := range all {
		lines = append(lines, fmt.Sprintf("%s:%s:%s", u.State, u.Unit, u.Wave))
	}
	return strings.Join(lines, " ")
}

func TestListUnits_FailedOnesFirst(t *testing.T) {
	r := rolloutIn(v1alpha1.RolloutProgressing)
	r.Status.FailedUnits = []v1alpha1.RolloutFailure{{Unit: "slow", Wave: "canary", Reason: "DeadlineExceeded", Message: "not healthy after 10m"}}
	s, _ := newTestServer(&fakeGate{}, append(sampleFleet(), r)...)
	got := getUnits(t, s, "")
	const want = "failed:broken:canary failed:slow:canary updating:young:canary outOfContact:off-old:canary " +
		"waiting:empty:canary waiting:later: waiting:old:canary updated:done:canary updated:off-done:canary"
	if text := formatUnits(got.Items); text != want || got.Total != 9 || !got.Complete {
		t.Errorf("%d, complete %t:\n%s, want\n%s", got.Total, got.Complete, text, want)
	}
	if u := got.Items[0]; u.Task != "task-broken" || u.Reason != "Exited" || u.Message != "exit code 3" || u.Robot != "broken" || u.RobotNamespace != "n" || u.Severity != "bad" {
		t.Errorf("%+v", u)
	}
	if u := got.Items[1]; u.Task != "" || u.Reason != "DeadlineExceeded" {
		t.Errorf("%+v", u)
	}
}

func TestListUnits_FiltersAndBounds(t *testing.T) {
	s, _ := newTestServer(&fakeGate{}, append(sampleFleet(), rolloutIn(v1alpha1.RolloutProgressing))...)
	for query, want := range map[string]string{
		"?limit=2":                        "failed:broken:canary updating:slow:canary",
		"?state=updated,failed&limit=2":   "failed:broken:canary updated:done:canary",
		"?wave=canary&state=waiting":      "waiting:empty:canary waiting:old:canary",
		"?wave=rest":                      "",
		"?state=outOfContact&wave=canary": "outOfContact:off-old:canary",
	} {
		if got := formatUnits(getUnits(t, s, query).Items); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := getUnits(t, s, "?limit=2"); got.Total != 9 {
		t.Errorf("total %d", got.Total)
	}
	for _, query := range []string{"?limit=1001", "?state=lost", "?limit=0"} {
		if code := serve(t, s, http.MethodGet, "/api/v1/objects/rollouts/n/r/units"+query, "", nil); code != http.StatusUnprocessableEntity {
			t.Errorf("%s: status %d", query, code)
		}
	}
}

// A retry gives a failed unit another chance, and a newer Rollout decides alone.
func TestListUnits_FollowsRetriesAndNewerRollouts(t *testing.T) {
	retried := rolloutIn(v1alpha1.RolloutProgressing)
	retried.Status.Waves[0].RetriedAt = minute(1)
	s, _ := newTestServer(&fakeGate{}, append(sampleFleet(), retried)...)
	if got := getUnits(t, s, "?state=failed"); got.Total != 0 {
		t.Errorf("after a retry: %s", formatUnits(got.Items))
	}
	newer := rolloutIn(v1alpha1.RolloutProgressing)
	newer.Name, newer.UID = "z", "z"
	s, _ = newTestServer(&fakeGate{}, append(sampleFleet(), rolloutIn(v1alpha1.RolloutProgressing), newer)...)
	if got := getUnits(t, s, "?state=updated,updating,failed"); got.Total != 0 {
		t.Errorf("of a Rollout that does not decide: %s", formatUnits(got.Items))
	}
}

// The last report that a task runs may be old: the server must have received a message of the robot since.
func TestListUnits_UpdatedNeedsContact(t *testing.T) {
	for _, c := range []struct {
		name    string
		contact int // minutes from noon
		healthy string
		want    string
	}{
		{"contact after it has run long enough", -1, "1m", "updated:a:canary"},
		{"contact before", -1, "90s", "updating:a:canary"},
		{"contact before the run", -5, "1m", "updating:a:canary"},
		{"the report is enough", -5, "0s", "updated:a:canary"},
	} {
		objects := fleetOf(map[string]v1alpha1.Task{"a": ranFrom("running", -2)})
		objects[0].(*v1alpha1.Job).Spec.TaskGroups[0].Update = &v1alpha1.Update{MinHealthyTime: new(v1alpha1.Duration(c.healthy))}
		for _, o := range objects {
			if r, ok := o.(*v1alpha1.Robot); ok {
				r.Status.LastHeartbeatTime = minute(c.contact)
			}
		}
		r := rolloutIn(v1alpha1.RolloutProgressing)
		r.Spec.Waves[0].HealthyFor = nil
		s, _ := newTestServer(&fakeGate{}, append(objects, r)...)
		if got := formatUnits(getUnits(t, s, "").Items); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestListUnits_Replicas(t *testing.T) {
	objects := fleetOf(map[string]v1alpha1.Task{"robot": {}})
	j := objects[0].(*v1alpha1.Job)
	j.Spec.Type, j.Spec.TaskGroups[0].Count = v1alpha1.JobTypeService, new(int32(2))
	first := taskOnRobot("robot", ranFrom("running", -2))
	first.Labels[v1alpha1.LabelTaskIndex] = "0"
	surplus := taskOnRobot("x", failedWith("Exited"))
	surplus.Labels[v1alpha1.LabelTaskIndex] = "2"
	r := rolloutIn(v1alpha1.RolloutProgressing)
	r.Spec.Waves[0].RobotSelector = nil
	s, _ := newTestServer(&fakeGate{}, append(objects, r, first, surplus)...)
	got := getUnits(t, s, "")
	if text := formatUnits(got.Items); text != "waiting:g/1:canary updated:g/0:canary" || got.Items[1].Robot != "robot" {
		t.Errorf("%s, %+v", text, got.Items)
	}
}

func TestListUnits_RefusesTooManyReplicas(t *testing.T) {
	for count, want := range map[int32]int{rollout.MaxReplicas / 2: http.StatusOK, 1_000_000: http.StatusUnprocessableEntity} {
		objects := fleetOf(nil)
		j := objects[0].(*v1alpha1.Job)
		j.Spec.Type, j.Spec.TaskGroups[0].Count = v1alpha1.JobTypeService, &count
		second := j.Spec.TaskGroups[0]
		second.Name = "h"
		j.Spec.TaskGroups = append(j.Spec.TaskGroups, second)
		s, _ := newTestServer(&fakeGate{}, append(objects, rolloutIn(v1alpha1.RolloutProgressing))...)
		var out metav1.Status
		code := serve(t, s, http.MethodGet, "/api/v1/objects/rollouts/n/r/units?limit=1", "", &out)
		if code != want || code != http.StatusOK && !strings.Contains(out.Message, "spec.taskGroups[].count: Invalid value: 2000000: a Rollout changes at most 100000 replicas") {
			t.Errorf("%d replicas in each group: %d %s", count, code, out.Message)
		}
	}
}

func TestListUnits_ShowsWhatTheCallerMaySee(t *testing.T) {
	gate := &fakeGate{}
	r := rolloutIn(v1alpha1.RolloutProgressing)
	r.Status.FailedUnits = []v1alpha1.RolloutFailure{{Unit: "slow", Wave: "canary", Reason: "DeadlineExceeded"}}
	s, _ := newTestServer(gate, append(sampleFleet(), r)...)
	denied := ""
	gate.allow = func(_ string, do authorizationv1.ResourceAttributes) (bool, error) {
		return denied != do.Verb+" "+do.Resource, nil
	}
	denied = "list robots"
	if got := getUnits(t, s, ""); got.Total != 8 || slices.ContainsFunc(got.Items, func(u rolloutUnit) bool { return u.Robot != "" }) {
		t.Errorf("without robots: %s", formatUnits(got.Items))
	}
	denied = "list tasks"
	if got := getUnits(t, s, ""); got.Complete || formatUnits(got.Items) != "failed:slow:canary" {
		t.Errorf("without tasks: complete %t, %s", got.Complete, formatUnits(got.Items))
	}
	denied = "get rollouts"
	if code := serve(t, s, http.MethodGet, "/api/v1/objects/rollouts/n/r/units", "", nil); code != http.StatusForbidden {
		t.Errorf("without the Rollout: status %d", code)
	}
}

// A Rollout that has ended does not decide about the tasks of its Job.
func TestListUnits_OfEndedRollouts(t *testing.T) {
	for _, change := range []func(*v1alpha1.Rollout){
		func(r *v1alpha1.Rollout) { r.Status.Phase = v1alpha1.RolloutSuperseded },
		func(r *v1alpha1.Rollout) { r.Status.Phase = v1alpha1.RolloutReverted },
		func(r *v1alpha1.Rollout) { r.Status.TargetUID = "earlier" },
	} {
		r := rolloutIn(v1alpha1.RolloutProgressing)
		r.Status.FailedUnits = []v1alpha1.RolloutFailure{{Unit: "slow", Wave: "canary"}}
		change(r)
		s, _ := newTestServer(&fakeGate{}, append(sampleFleet(), r)...)
		if got := getUnits(t, s, ""); got.Complete || formatUnits(got.Items) != "failed:slow:canary" {
			t.Errorf("%s: complete %t, %s", r.Status.Phase, got.Complete, formatUnits(got.Items))
		}
	}
}

func TestGetObject_DescribesWaves(t *testing.T) {
	s, _ := newTestServer(&fakeGate{}, rolloutIn(v1alpha1.RolloutWaitingForApproval))
	d := getDetails(t, s, "rollouts/n/r")
	waves := d.Rollout.Waves
	if len(waves) != 2 || d.Rollout.Counts.Total != 8 || d.Row.Job != "j" || d.Row.Revision != 2 || d.Row.FromRevision != 1 {
		t.Fatalf("%+v, row %+v", d.Rollout, d.Row)
	}
	if w := waves[0]; w.Includes != "canary=yes" || w.State != rollout.WaveRunning || w.CanApprove || w.Pause != "1h" || w.HealthyFor != "1m" || w.Counts.OutOfContact != 1 || w.Started == nil {
		t.Errorf("%+v", w)
	}
	if w := waves[1]; w.Includes != "100%" || w.State != rollout.WaveNeedsApproval || !w.CanApprove || w.Counts != nil {
		t.Errorf("%+v", w)
	}
}

func TestActions_ApproveNeedsAWave(t *testing.T) {
	s, _ := newTestServer(&fakeGate{}, rolloutIn(v1alpha1.RolloutWaitingForApproval))
	for _, body := range []string{
		`{"action": "approve", "items": [{"kind": "rollouts", "namespace": "n", "name": "r"}]}`,
		`{"action": "pause", "wave": "rest", "items": [{"kind": "rollouts", "namespace": "n", "name": "r"}]}`,
	} {
		if code := serve(t, s, http.MethodPost, "/api/v1/actions", body, nil); code != http.StatusBadRequest {
			t.Errorf("%s: status %d", body, code)
		}
	}
}

func TestListRevisions_OfTheJob(t *testing.T) {
	gate := &fakeGate{}
	job := fleetOf(nil)[0].(*v1alpha1.Job)
	s, _ := newTestServer(gate, job)
	revisionOf := func(name, owner string, n int64) *appsv1.ControllerRevision {
		r := &appsv1.ControllerRevision{ObjectMeta: metaOf(name, ownedBy(v1alpha1.GroupVersion.String(), "Job", owner)), Revision: n}
		r.ResourceVersion, r.Labels = "", map[string]string{v1alpha1.LabelPrefixedJob: "j"}
		return r
	}
	first, second := revisionOf("a", "j", 1), revisionOf("b", "j", 2)
	second.Annotations = map[string]string{annotationChangeCause: "release 2"}
	other := revisionOf("c", "j", 3)
	other.OwnerReferences[0].UID = types.UID("earlier")
	s.live = fake.NewClientBuilder().WithObjects(first, second, other).Build()
	var got revisionList
	if code := serve(t, s, http.MethodGet, "/api/v1/objects/jobs/n/j/revisions", "", &got); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	if len(got.Items) != 2 || got.Items[0].Revision != 2 || !got.Items[0].Update || got.Items[0].ChangeCause != "release 2" || !got.Items[1].Current || got.Items[1].Update {
		t.Errorf("%+v", got.Items)
	}
	gate.allow = func(_ string, do authorizationv1.ResourceAttributes) (bool, error) {
		return do.Resource != "controllerrevisions", nil
	}
	if code := serve(t, s, http.MethodGet, "/api/v1/objects/jobs/n/j/revisions", "", nil); code != http.StatusForbidden {
		t.Errorf("without a right to revisions: status %d", code)
	}
}
